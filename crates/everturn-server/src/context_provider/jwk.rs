//! A public key that tokens are signed with.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};
use serde::Deserialize;

/// A JSON Web Key (RFC 7517). Keys of unknown kinds are parsed and verify nothing.
#[derive(Clone, Deserialize)]
pub(super) struct Jwk {
    pub(super) kid: Option<String>,
    kty: String,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Jwk {
    /// Returns whether the signature of a message was made with this key's private half by this algorithm.
    /// The key determines the possible algorithms, all of them asymmetric: if a public key were used as a
    /// secret, everyone could sign.
    pub(super) fn verifies(&self, algorithm: &str, message: &[u8], signature: &[u8]) -> bool {
        let is_meant = self.alg.as_deref().is_none_or(|meant| meant == algorithm);
        is_meant && self.verify(algorithm, message, signature).is_some()
    }

    fn verify(&self, algorithm: &str, message: &[u8], signature: &[u8]) -> Option<()> {
        let checked = |with: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(with, key).verify(message, signature).ok()
        };
        match (algorithm, self.kty.as_str(), self.crv.as_deref()) {
            ("EdDSA", "OKP", Some("Ed25519")) => checked(&ED25519, &part(self.x.as_ref())?),
            ("ES256", "EC", Some("P-256")) => checked(&ECDSA_P256_SHA256_FIXED, &self.point()?),
            ("ES384", "EC", Some("P-384")) => checked(&ECDSA_P384_SHA384_FIXED, &self.point()?),
            (_, "RSA", _) => {
                let (n, e) = (part(self.n.as_ref())?, part(self.e.as_ref())?);
                let key = RsaPublicKeyComponents { n, e };
                key.verify(rsa(algorithm)?, message, signature).ok()
            }
            _ => None,
        }
    }

    /// Returns the point of an elliptic curve, uncompressed.
    fn point(&self) -> Option<Vec<u8>> {
        Some([vec![4], part(self.x.as_ref())?, part(self.y.as_ref())?].concat())
    }
}

fn part(text: Option<&String>) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text?).ok()
}

fn rsa(algorithm: &str) -> Option<&'static RsaParameters> {
    Some(match algorithm {
        "RS256" => &RSA_PKCS1_2048_8192_SHA256,
        "RS384" => &RSA_PKCS1_2048_8192_SHA384,
        "RS512" => &RSA_PKCS1_2048_8192_SHA512,
        "PS256" => &RSA_PSS_2048_8192_SHA256,
        "PS384" => &RSA_PSS_2048_8192_SHA384,
        "PS512" => &RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}
