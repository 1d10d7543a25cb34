//! A receiver: where it is, and how it is told.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use ureq::Agent;
use ureq::http::Uri;
use ureq::http::uri::Authority;

/// How long a receiver may take for all of its answer.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 10 });
/// The header with the signature, as GitHub has it: `sha256=` and the HMAC of the body in hex.
const SIGNATURE: &str = "X-Saturn-Signature-256";
/// The header with the id of what is told.
const KEY: &str = "Idempotency-Key";

/// A receiver of what happens to runs.
#[derive(Debug)]
pub struct Receiver {
    address: String,
    /// Scheme, host and port: what may be shown.
    shown: String,
    secret: Option<Vec<u8>>,
    agent: Agent,
}

/// Why a receiver has not accepted a webhook.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotTaken {
    /// It says that it does not want this.
    Refused(String),
    /// It was not reached, or is in trouble.
    Failed(String),
}

impl Receiver {
    /// The receiver at this address. If there is a secret, all that it is told is signed by it.
    ///
    /// # Errors
    ///
    /// What is wrong with the address, or with the secret. The address may hold a secret of its own, so
    /// it is not repeated.
    pub fn new(address: &str, secret: Option<&str>) -> Result<Self, String> {
        let scheme = address.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        let Some(scheme) = scheme.filter(|scheme| scheme == "http" || scheme == "https") else {
            return Err("it does not begin with http:// or https://".to_owned());
        };
        let uri: Uri = address.parse().map_err(|error| format!("it is no address: {error}"))?;
        let authority = uri.authority().map(Authority::as_str).unwrap_or_default();
        let Some(host) = uri.host().filter(|host| !host.is_empty()) else {
            return Err("it names no host".to_owned());
        };
        if authority.contains('@') {
            return Err("it has a name or password before the host, which is not sent".to_owned());
        }
        if secret.is_some_and(str::is_empty) {
            return Err("its secret is empty".to_owned());
        }
        let mut config = Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            // Where it leads, and whether the secret may go there, is unknown.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .max_idle_connections(0)
            .user_agent(concat!("saturn/", env!("CARGO_PKG_VERSION")));
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let is_here = bare.parse().map_or(bare == "localhost", |ip: IpAddr| ip.is_loopback());
        if is_here {
            // A proxy's localhost is another machine.
            config = config.proxy(None);
        }
        Ok(Self {
            address: address.to_owned(),
            shown: format!("{scheme}://{authority}"),
            secret: secret.map(|secret| secret.as_bytes().to_vec()),
            agent: config.build().into(),
        })
    }

    /// Its whole address.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// As much of its address as may be shown.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// Tells something, which has this id.
    pub(super) fn tell(&self, id: &str, body: &[u8]) -> Result<(), NotTaken> {
        let mut request = self
            .agent
            .post(&self.address)
            .header("Content-Type", "application/json")
            .header(KEY, id);
        if let Some(signature) = self.secret.as_ref().and_then(|secret| signature(secret, body)) {
            request = request.header(SIGNATURE, signature);
        }
        let response = request.send(body).map_err(|error| NotTaken::Failed(in_words(&error)))?;
        let status = response.status();
        let told = || format!("it answered {}", status.as_u16());
        match status.as_u16() {
            200..=299 => Ok(()),
            300..=399 => {
                Err(NotTaken::Refused(format!("{}: a redirection, which is not followed", told())))
            }
            // Too slow, too early, too much: the same may be taken later.
            408 | 425 | 429 => Err(NotTaken::Failed(told())),
            400..=499 => Err(NotTaken::Refused(told())),
            _ => Err(NotTaken::Failed(told())),
        }
    }
}

/// `sha256=` and the HMAC-SHA256 of a body in hex.
fn signature(secret: &[u8], body: &[u8]) -> Option<String> {
    // A key of any length will do.
    let mut code = Hmac::<Sha256>::new_from_slice(secret).ok()?;
    code.update(body);
    let code = code.finalize().into_bytes();
    Some(code.iter().fold("sha256=".to_owned(), |text, byte| format!("{text}{byte:02x}")))
}

fn in_words(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Timeout(_) => format!("it did not answer within {} s", PATIENCE.as_secs()),
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            "nobody listens there".to_owned()
        }
        // What is wrong with a certificate comes inside.
        ureq::Error::Io(error) => {
            error.get_ref().map_or_else(|| saturn_store::io_words(error), ToString::to_string)
        }
        ureq::Error::HostNotFound => "there is no such host".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_of_the_standard() {
        // RFC 4231, test case 2.
        let expected = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(signature(b"Jefe", b"what do ya want for nothing?").unwrap(), expected);
        // Test case 6: a key that is longer than a block.
        let expected = "sha256=60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54";
        let text = b"Test Using Larger Than Block-Size Key - Hash Key First";
        assert_eq!(signature(&[0xaa; 131], text).unwrap(), expected);
    }

    #[test]
    fn addresses_that_are_not_http_are_refused_and_not_repeated() {
        for (address, words) in [
            ("file:///etc/passwd", "does not begin with http"),
            ("ftp://secret.example/x", "does not begin with http"),
            ("secret", "does not begin with http"),
            ("http://", "no address"),
            ("http://ada:secret@example.org/", "name or password"),
            ("http://secret exam ple/", "no address"),
        ] {
            let error = Receiver::new(address, None).unwrap_err();
            assert!(error.contains(words) && !error.contains("secret"), "{address}: {error}");
        }
        let error = Receiver::new("http://example.org", Some("")).unwrap_err();
        assert_eq!(error, "its secret is empty");
        let receiver = Receiver::new("https://hooks.example:8443/t/secret?k=secret", None).unwrap();
        assert_eq!(receiver.shown(), "https://hooks.example:8443");
    }
}
