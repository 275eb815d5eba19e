//! Rules for requests to URLs that come from outside, and the budget of one turn or model call under them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use everturn_core::{Error, Result};

/// The URLs that may be fetched, with limits.
///
/// Every outgoing request to a URL that a client chose is made under these rules. Allowed are URLs with the
/// scheme `https` at the listed hosts; each redirect, at most three in a row, is checked like the first URL.
/// A host is resolved once, its addresses are checked, and the connection is made to a checked address.
/// Addresses that are not public (loopback, private, link-local, shared, multicast and reserved ones, and the
/// metadata services of clouds) are rejected.
///
/// ```
/// # use std::time::Duration;
/// # use everturn_ai::FetchRules;
/// let rules = FetchRules::hosts(["images.example.com", "*.cdn.example.com"]).time(Duration::from_secs(10));
/// ```
///
/// As a value of the application (`Everturn::builder().with(rules)`), they are the rules for URLs that the
/// program itself gives to a model. The default for those is [`FetchRules::any_host`] with `http`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct FetchRules {
    /// `None` allows every host.
    hosts: Option<Arc<[String]>>,
    http: bool,
    private_addresses: bool,
    max_count: usize,
    max_bytes: usize,
    max_total_bytes: usize,
    time: Duration,
}

impl FetchRules {
    /// Allows these hosts. `*.example.com` matches all names that end with `.example.com`. A name with other
    /// than ASCII letters is given in its encoded form (`xn--…`).
    pub fn hosts(hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let lower = |host: String| host.to_ascii_lowercase();
        Self {
            hosts: Some(hosts.into_iter().map(Into::into).map(lower).collect()),
            ..Self::any_host()
        }
    }

    /// Allows every host that has a public address.
    pub fn any_host() -> Self {
        Self {
            hosts: None,
            http: false,
            private_addresses: false,
            max_count: 32,
            max_bytes: 20 * 1024 * 1024,
            max_total_bytes: 32 * 1024 * 1024,
            time: Duration::from_secs(30),
        }
    }

    /// Returns the default rules for URLs of the program itself.
    pub(super) fn of_program() -> Self {
        Self::any_host().allow_http()
    }

    everturn_core::setters! {
        /// Allows the scheme `http` in addition to `https`.
        pub fn allow_http(mut self) { self.http = true }

        /// Allows addresses that are not public, such as those of the local network and of this machine.
        pub fn allow_private_addresses(mut self) { self.private_addresses = true }

        /// Sets the number of URLs that are fetched in one turn; 32 by default.
        pub fn max_count(mut self, count: usize) { self.max_count = count }

        /// Sets the greatest size of one response, in bytes; 20 MiB by default.
        pub fn max_bytes(mut self, bytes: usize) { self.max_bytes = bytes }

        /// Sets the greatest size of all responses of one turn together, in bytes; 32 MiB by default.
        pub fn max_total_bytes(mut self, bytes: usize) { self.max_total_bytes = bytes }

        /// Sets the time limit for all fetches of one model call, with redirects; 30 seconds by default.
        pub fn time(mut self, time: Duration) { self.time = time }
    }

    pub(super) fn total_time(&self) -> Duration {
        self.time
    }

    /// Checks the scheme and the host of a URL.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if they are not allowed.
    pub fn check_url(&self, url: &str) -> Result<()> {
        let refused =
            |why: &str| Err(Error::invalid_argument(format!("{why}: {}", shortened(url))).with_public());
        let Some((scheme, host)) = origin(url) else {
            return refused("only 'https' URLs with a plain host name are fetched");
        };
        if scheme != "https" && !(self.http && scheme == "http") {
            return refused("the scheme is not among those that are fetched");
        }
        let is_listed = |listed: &String| match listed.strip_prefix('*') {
            Some(end) if end.starts_with('.') => host.len() > end.len() && host.ends_with(end),
            _ => *listed == host,
        };
        match &self.hosts {
            Some(hosts) if !hosts.iter().any(is_listed) => {
                refused("the host is not among those that are fetched from")
            }
            _ => Ok(()),
        }
    }

    /// Returns whether a connection to an address is allowed.
    pub fn allows_address(&self, address: IpAddr) -> bool {
        self.private_addresses || is_public(address)
    }
}

/// Returns the scheme and the host of a URL, in lower case. `None` if the URL has user names, escapes or
/// other characters that URL parsers read differently.
fn origin(url: &str) -> Option<(String, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (host, port) = if let Some(address) = authority.strip_prefix('[') {
        let (address, port) = address.split_once(']')?;
        address.parse::<Ipv6Addr>().ok()?;
        (
            format!("[{address}]"),
            port.strip_prefix(':').or(port.is_empty().then_some(""))?,
        )
    } else {
        let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
        if host.is_empty() || !host.chars().all(is_plain) {
            return None;
        }
        (host.to_owned(), port)
    };
    let is_port = port.chars().all(|digit| digit.is_ascii_digit());
    is_port.then(|| (scheme.to_ascii_lowercase(), host.to_ascii_lowercase()))
}

/// Returns a URL for an error message: long ones are cut.
fn shortened(url: &str) -> String {
    let mut text: String = url.chars().take(120).collect();
    if text.len() < url.len() {
        text.push('…');
    }
    format!("'{text}'")
}

/// Returns whether an address belongs to the public internet.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = matches!(
        (a, b, c),
        // This network, private, shared (CGNAT), loopback, link-local, protocol assignments, benchmarks,
        // multicast, reserved.
        (0 | 10 | 127 | 224.., _, _)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (192, 168, _)
            | (198, 18..=19, _)
            | (198, 51, 100)
            | (203, 0, 113)
    );
    // The last one is the metadata service of a cloud at a seemingly public address.
    !is_special && address != Ipv4Addr::new(168, 63, 129, 16)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        // An IPv4 address behind NAT64.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            is_public_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
        }
        // Assignments to protocols (Teredo, ORCHID), documentation, 6to4.
        [0x2001, 0..=0x01ff | 0x0db8, ..] | [0x2002, ..] | [0x3fff, 0..=0x0fff, ..] => false,
        // Global unicast; mapped, unique local, link-local and multicast addresses are outside of it.
        [first, ..] => (0x2000..=0x3fff).contains(&first),
    }
}

/// The number of bytes of fetched media for clients that this process buffers.
static BUFFERED: AtomicUsize = AtomicUsize::new(0);

/// The limit of fetched media for clients that this process buffers at once, in bytes.
const MAX_BUFFERED: usize = 32 * 1024 * 1024;

/// The rules of one turn or model call, with the remaining limits.
#[derive(Debug)]
pub struct FetchBudget {
    rules: FetchRules,
    /// Whether the bytes count towards the limit of the process.
    is_shared: bool,
    count: AtomicUsize,
    bytes: AtomicUsize,
}

impl FetchBudget {
    /// Creates a budget for URLs that the program chose.
    pub fn new(rules: FetchRules) -> Self {
        Self {
            rules,
            is_shared: false,
            count: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }

    /// Creates a budget for URLs that a client chose. Fetched bytes also count towards the 32 MiB that the
    /// process buffers for all clients, until the budget is dropped.
    pub fn for_client(rules: FetchRules) -> Self {
        let mut budget = Self::new(rules);
        budget.is_shared = true;
        budget
    }

    /// Returns the rules.
    pub fn rules(&self) -> &FetchRules {
        &self.rules
    }

    /// Starts to fetch a URL, of at most `max_bytes` bytes.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the rules do not allow the URL or the number of URLs; [`Fetch::take`] fails with
    /// it for bytes beyond `max_bytes`.
    pub fn begin<'a>(&'a self, url: &'a str, max_bytes: usize) -> Result<Fetch<'a>> {
        self.rules.check_url(url)?;
        let most = self.rules.max_count;
        if self.count.fetch_add(1, Ordering::Relaxed) >= most {
            return Err(
                Error::invalid_argument(format!("more than {most} URLs are to be fetched")).with_public(),
            );
        }
        Ok(Fetch {
            url,
            budget: self,
            max_bytes: max_bytes.min(self.rules.max_bytes),
            taken: AtomicUsize::new(0),
        })
    }
}

impl Drop for FetchBudget {
    fn drop(&mut self) {
        if self.is_shared {
            BUFFERED.fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
        }
    }
}

/// A URL that may be fetched, with its limits.
#[derive(Debug)]
pub struct Fetch<'a> {
    url: &'a str,
    budget: &'a FetchBudget,
    max_bytes: usize,
    taken: AtomicUsize,
}

impl Fetch<'_> {
    /// Returns the URL. Its scheme and host are allowed.
    pub fn url(&self) -> &str {
        self.url
    }

    /// Returns the rules, for the addresses of the host and for redirects.
    pub fn rules(&self) -> &FetchRules {
        &self.budget.rules
    }

    /// Returns the largest response in bytes.
    pub fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Counts bytes that arrived, before they are stored.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the response or all responses of the turn are too large; `RESOURCE_EXHAUSTED` if
    /// the process has reached its limit.
    pub fn take(&self, bytes: usize) -> Result<()> {
        let budget = self.budget;
        let add = |counter: &AtomicUsize, most: usize| {
            let added = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |buffered| {
                buffered.checked_add(bytes).filter(|sum| *sum <= most)
            });
            added.is_ok()
        };
        if !add(&self.taken, self.max_bytes) {
            let most = self.max_bytes;
            return Err(Error::invalid_argument(format!("it is larger than {most} bytes")).with_public());
        }
        let most = budget.rules.max_total_bytes;
        if !add(&budget.bytes, most) {
            let message = format!("all that is fetched is larger than {most} bytes");
            return Err(Error::invalid_argument(message).with_public());
        }
        if budget.is_shared && !add(&BUFFERED, MAX_BUFFERED) {
            budget.bytes.fetch_sub(bytes, Ordering::Relaxed);
            let message = format!(
                "the server has buffered {MAX_BUFFERED} bytes of fetched media, its limit; try again later"
            );
            return Err(Error::resource_exhausted(message).with_public());
        }
        Ok(())
    }

    /// Counts the bytes that a fetcher returned without counting them.
    pub(super) fn finish(&self, bytes: usize) -> Result<()> {
        let uncounted = bytes.saturating_sub(self.taken.load(Ordering::Relaxed));
        if uncounted == 0 {
            Ok(())
        } else {
            self.take(uncounted)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_hosts_and_https_are_allowed_by_default() {
        let rules = FetchRules::hosts(["images.example.com", "*.cdn.example.com"]);

        for allowed in [
            "https://images.example.com/a.png",
            "HTTPS://Images.Example.com:8443?x",
            "https://a.b.cdn.example.com#x",
        ] {
            rules.check_url(allowed).unwrap();
        }
        for refused in [
            "http://images.example.com/a.png",
            "ftp://images.example.com/a.png",
            "file:///etc/passwd",
            "https://cdn.example.com/",
            "https://evilcdn.example.com/",
            "https://images.example.com.evil.test/",
            "https://images.example.com@evil.test/",
            "https://evil.test\\@images.example.com/",
            "https://images.example.com%00.evil.test/",
            "https://images.example.com\t.evil.test/",
            "https://127.0.0.1/",
            "https:///",
            "https://[::1]/",
            " https://images.example.com/",
        ] {
            assert!(rules.check_url(refused).is_err(), "{refused}");
        }
        assert!(
            rules
                .allow_http()
                .check_url("http://images.example.com/a.png")
                .is_ok()
        );
    }

    #[test]
    fn addresses_that_are_not_public_are_refused() {
        let (public, own) = (
            FetchRules::any_host(),
            FetchRules::any_host().allow_private_addresses(),
        );
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.9.9.9",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::7f00:1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2001::1",
            "2002:7f00:1::",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert!(!public.allows_address(address), "{address}");
            assert!(own.allows_address(address), "{address}");
        }
        for address in [
            "8.8.8.8",
            "100.63.0.1",
            "172.32.0.1",
            "2606:4700::1111",
            "64:ff9b::808:808",
        ] {
            assert!(public.allows_address(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn bytes_and_urls_are_counted_over_all_fetches() {
        let rules = FetchRules::hosts(["x.test"])
            .max_count(3)
            .max_bytes(6)
            .max_total_bytes(10);
        let budget = FetchBudget::new(rules);

        let first = budget.begin("https://x.test/1", 100).unwrap();
        first.take(6).unwrap();
        assert!(first.take(1).is_err());
        let second = budget.begin("https://x.test/2", 3).unwrap();
        assert!(second.take(4).is_err());
        assert!(budget.begin("https://y.test/", 3).is_err());
        let third = budget.begin("https://x.test/3", 100).unwrap();
        assert!(third.take(5).is_err());
        assert!(budget.begin("https://x.test/4", 3).is_err());
    }

    #[test]
    fn bytes_for_clients_are_bounded_in_the_process_and_given_back() {
        let rules = || {
            FetchRules::hosts(["x.test"])
                .max_bytes(MAX_BUFFERED)
                .max_total_bytes(MAX_BUFFERED)
        };
        let (one, other) = (FetchBudget::for_client(rules()), FetchBudget::for_client(rules()));

        one.begin("https://x.test/", MAX_BUFFERED)
            .unwrap()
            .take(MAX_BUFFERED)
            .unwrap();
        let fetch = other.begin("https://x.test/", MAX_BUFFERED).unwrap();
        assert!(fetch.take(1).is_err());

        drop(one);
        let again = other.begin("https://x.test/", MAX_BUFFERED).unwrap();
        again.take(MAX_BUFFERED).unwrap();
    }
}
