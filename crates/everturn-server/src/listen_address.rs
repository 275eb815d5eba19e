//! The address that a server listens on.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use everturn_core::{Error, Result};
use tokio::net::TcpListener;

/// An address that a server listens on: a socket address, an IP address with a port, or text with a name or
/// an address and a port.
///
/// ```
/// use everturn_server::ListenAddress;
///
/// let one = ListenAddress::from("127.0.0.1:8080");
/// let other = ListenAddress::from(([127, 0, 0, 1], 8080));
/// assert_eq!(one.to_string(), other.to_string());
/// ```
#[derive(Debug, Clone)]
pub struct ListenAddress(Form);

#[derive(Debug, Clone)]
enum Form {
    Socket(SocketAddr),
    Text(String),
}

impl ListenAddress {
    /// Opens a listener at the address.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for text that is no address; otherwise the operating system's error.
    pub(crate) async fn listen(self) -> Result<TcpListener> {
        let bound = match &self.0 {
            Form::Socket(address) => TcpListener::bind(address).await,
            Form::Text(text) if !has_port(text) => {
                return Err(Error::invalid_argument(format!(
                    "'{text}' is no address to listen on: write a name or an IP address and a port, such as 127.0.0.1:8080"
                )));
            }
            Form::Text(text) => TcpListener::bind(text.as_str()).await,
        };
        bound.map_err(|error| Error::from(error).context(format_args!("cannot listen on {self}")))
    }
}

fn has_port(text: &str) -> bool {
    let port = text.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    port.is_some_and(|port| port.is_ok())
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self(Form::Socket(address))
    }
}

// One by one, because a form for every type that is an IP address would leave no room for names.
macro_rules! from_ip_and_port {
    ($($ip:ty),*) => {$(
        impl From<($ip, u16)> for ListenAddress {
            fn from((ip, port): ($ip, u16)) -> Self {
                SocketAddr::new(ip.into(), port).into()
            }
        }
    )*};
}

from_ip_and_port!(IpAddr, Ipv4Addr, Ipv6Addr, [u8; 4], [u8; 16]);

impl From<(&str, u16)> for ListenAddress {
    fn from((name, port): (&str, u16)) -> Self {
        match name.parse::<IpAddr>() {
            Ok(ip) => (ip, port).into(),
            Err(_) => format!("{name}:{port}").into(),
        }
    }
}

impl From<&str> for ListenAddress {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<String> for ListenAddress {
    fn from(text: String) -> Self {
        Self(Form::Text(text))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Socket(address) => address.fmt(f),
            Form::Text(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_form_is_listened_on() {
        let forms: [ListenAddress; 5] = [
            "127.0.0.1:0".into(),
            "localhost:0".to_owned().into(),
            ("localhost", 0).into(),
            ([127, 0, 0, 1], 0).into(),
            SocketAddr::from(([127, 0, 0, 1], 0)).into(),
        ];
        for form in forms {
            assert!(
                form.clone()
                    .listen()
                    .await
                    .unwrap()
                    .local_addr()
                    .unwrap()
                    .ip()
                    .is_loopback(),
                "{form}"
            );
        }
    }

    #[tokio::test]
    async fn text_without_a_port_is_refused_with_an_example() {
        for text in ["127.0.0.1", "kitchen", "", ":", "kitchen:soup"] {
            let error = ListenAddress::from(text).listen().await.unwrap_err();

            assert!(error.message().contains("such as 127.0.0.1:8080"), "{error}");
        }
    }
}
