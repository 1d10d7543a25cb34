//! The token, and the sessions of browsers that showed it.
//!
//! Only hashes are kept, and all of them are compared in full, so that the time of a comparison
//! tells nothing. A session ends after a while, and with the server.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

/// Bytes of a token and of a session's key: 256 random bits.
const BYTES: usize = 32;
/// How long a session lasts by default.
const SESSION: Duration = Duration::from_hours(24 * 7);
/// The most sessions; the oldest goes first.
const MAX_SESSIONS: usize = 64;

type Hash = [u8; 32];

/// Knows who may ask.
#[derive(Debug)]
pub struct Keys {
    token: Hash,
    lasts: Duration,
    sessions: Mutex<Vec<Session>>,
}

#[derive(Debug)]
struct Session {
    key: Hash,
    ends: Instant,
}

impl Keys {
    /// Keys with a new token, and that token, which nobody else has.
    pub fn new() -> io::Result<(Self, String)> {
        Self::lasting(SESSION)
    }

    /// The same, with sessions that last so long.
    pub fn lasting(lasts: Duration) -> io::Result<(Self, String)> {
        let token = random()?;
        Ok((Self { token: hash(&token), lasts, sessions: Mutex::default() }, token))
    }

    /// Whether this is the token.
    pub fn is_token(&self, given: &str) -> bool {
        is_equal(&self.token, &hash(given))
    }

    /// Begins a session; the answer is its key.
    #[expect(clippy::disallowed_methods, reason = "a session ends after a while")]
    pub fn begin_session(&self) -> io::Result<String> {
        let key = random()?;
        let now = Instant::now();
        let mut sessions = self.sessions();
        sessions.retain(|session| session.ends > now);
        if sessions.len() >= MAX_SESSIONS {
            sessions.remove(0);
        }
        sessions.push(Session { key: hash(&key), ends: now + self.lasts });
        Ok(key)
    }

    /// Whether this is the key of a session that has not ended.
    #[expect(clippy::disallowed_methods, reason = "a session ends after a while")]
    pub fn is_session(&self, given: &str) -> bool {
        let (given, now) = (hash(given), Instant::now());
        let sessions = self.sessions();
        let right = sessions.iter().filter(|one| is_equal(&one.key, &given) && one.ends > now);
        // All are compared.
        right.count() > 0
    }

    /// Ends a session.
    pub fn end_session(&self, given: &str) {
        let given = hash(given);
        self.sessions().retain(|session| !is_equal(&session.key, &given));
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// 256 random bits as hexadecimal digits.
fn random() -> io::Result<String> {
    let mut bytes = [0; BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

fn hash(text: &str) -> Hash {
    Sha256::digest(text.as_bytes()).into()
}

/// Compares without stopping at the first difference.
fn is_equal(one: &Hash, other: &Hash) -> bool {
    let different = one.iter().zip(other).fold(0, |sum, (one, other)| sum | (one ^ other));
    std::hint::black_box(different) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_and_a_session_that_goes_on_count() {
        let (keys, token) = Keys::new().unwrap();
        assert_eq!(token.len(), 64);
        assert!(keys.is_token(&token));
        for wrong in ["", "0", &token[1..], &(token.clone() + "0"), &token.to_uppercase()] {
            assert!(!keys.is_token(wrong) || wrong == token, "{wrong}");
        }
        assert_ne!(Keys::new().unwrap().1, token);
        let session = keys.begin_session().unwrap();
        assert!(keys.is_session(&session) && !keys.is_token(&session));
        assert!(!keys.is_session(&token));
        keys.end_session(&session);
        assert!(!keys.is_session(&session));
        let (short, _) = Keys::lasting(Duration::ZERO).unwrap();
        assert!(!short.is_session(&short.begin_session().unwrap()));
    }

    #[test]
    fn the_oldest_session_makes_room() {
        let (keys, _) = Keys::new().unwrap();
        let all: Vec<String> = (0..=MAX_SESSIONS).map(|_| keys.begin_session().unwrap()).collect();
        assert!(!keys.is_session(&all[0]) && keys.is_session(&all[1]));
    }
}
