//! Checksums of stored rows, for stores in databases.

/// A checksum of the values of a stored row, under computation.
///
/// It is to cover what a reader is given and the row's identity: then a value that was changed, or that
/// belongs to another row, is noticed. It is no protection against those who can compute it themselves.
///
/// ```
/// use everturn_agent::store::Checksum;
///
/// let of = |key: i64, text: &str| Checksum::default().integer(key).text(text).finish();
///
/// assert_eq!(of(1, "leeks"), of(1, "leeks"));
/// assert_ne!(of(1, "leeks"), of(2, "leeks"));
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Checksum(crc32fast::Hasher);

impl Checksum {
    /// Adds a value that is absent.
    pub fn null(mut self) -> Self {
        self.0.update(b"n");
        self
    }

    /// Adds an integer.
    pub fn integer(self, number: i64) -> Self {
        self.tagged(b'i', &number.to_le_bytes())
    }

    /// Adds a number with a fraction.
    pub fn real(self, number: f64) -> Self {
        self.tagged(b'r', &number.to_le_bytes())
    }

    /// Adds a text.
    pub fn text(self, text: impl AsRef<[u8]>) -> Self {
        self.tagged(b't', text.as_ref())
    }

    /// Adds bytes.
    pub fn bytes(self, bytes: impl AsRef<[u8]>) -> Self {
        self.tagged(b'b', bytes.as_ref())
    }

    /// Adds a value if there is one.
    pub fn optional<T>(self, value: Option<T>, add: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => add(self, value),
            None => self.null(),
        }
    }

    /// Adds the values of another checksum, without reading them again.
    pub fn then(mut self, others: &Self) -> Self {
        self.0.combine(&others.0);
        self
    }

    /// Adds a value with its type and length, so that values next to each other stay apart.
    fn tagged(mut self, tag: u8, bytes: &[u8]) -> Self {
        self.0.update(&[tag]);
        self.0.update(&bytes.len().to_le_bytes());
        self.0.update(bytes);
        self
    }

    /// Returns the checksum, of 32 bits.
    pub fn finish(self) -> i64 {
        self.0.finalize().into()
    }
}
