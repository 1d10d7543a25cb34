//! How large the shares of people are who share a pool, as the person who drives the pool says.
//!
//! How shares shape plans is the engine's (`saturn_engine::Sharing`).

use std::collections::BTreeMap;

use nix::unistd::{User, geteuid};
use saturn_engine::Sharing;

use crate::asking::door::login;
use crate::launching::settings::LaunchSettings;
use crate::system::error::RuntimeError;

/// How large people's shares are beside one another, by login name.
pub(crate) type Shares = BTreeMap<String, f64>;

/// The least and the largest share.
const SIZES: (f64, f64) = (0.001, 1000.0);

/// The rules by which people share a run from here on; `None` if it is not shared. `before`: the rules
/// until now, which hold where no shares are given.
pub(crate) fn sharing_by(
    before: Option<Sharing>,
    settings: &LaunchSettings,
    shares: Option<Shares>,
) -> Result<Option<Sharing>, RuntimeError> {
    let given = shares.as_ref().is_some_and(|shares| !shares.is_empty());
    if settings.door.is_none() {
        let reason = "`shares` is for a pool that other people join: give `share` too, the directory at which they \
                      join it";
        return if given {
            Err(RuntimeError::Refused { reason: reason.to_owned() })
        } else {
            Ok(None)
        };
    }
    if let Some(shares) = &shares {
        check(shares)?;
    }
    let before = before.unwrap_or_else(|| Sharing { host: login(geteuid()), ..Sharing::default() });
    Ok(Some(Sharing { shares: shares.unwrap_or_else(|| before.shares.clone()), ..before }))
}

fn check(shares: &Shares) -> Result<(), RuntimeError> {
    for (name, size) in shares {
        if !(SIZES.0..=SIZES.1).contains(size) {
            let (least, most) = SIZES;
            let reason =
                format!("the share of `{name}` is {size}; it must be from {least} to {most}");
            return Err(RuntimeError::Refused { reason });
        }
        if User::from_name(name).ok().flatten().is_none() {
            let reason =
                format!("`shares` has `{name}`, which no person of this machine is called");
            return Err(RuntimeError::Refused { reason });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_files::journal::tests::settings;

    fn shared() -> LaunchSettings {
        LaunchSettings { door: Some("/srv/pool".into()), ..settings() }
    }

    fn shares(name: &str, size: f64) -> Shares {
        Shares::from([(name.to_owned(), size)])
    }

    fn error(shares: Shares, settings: &LaunchSettings) -> String {
        sharing_by(None, settings, Some(shares)).unwrap_err().to_string()
    }

    #[test]
    fn shares_that_mean_nothing_are_refused() {
        assert!(error(shares("root", 0.0), &shared()).contains("from 0.001 to 1000"));
        assert!(error(shares("root", f64::NAN), &shared()).contains("from 0.001 to 1000"));
        assert!(error(shares("no-such-person", 1.0), &shared()).contains("no-such-person"));
        assert!(error(shares("root", 1.0), &settings()).contains("`share`"));
        assert_eq!(sharing_by(None, &settings(), None).unwrap(), None);
    }

    #[test]
    fn shares_hold_until_others_are_given() {
        let first = sharing_by(None, &shared(), Some(shares("root", 2.0))).unwrap().unwrap();
        assert_eq!(first.host, login(geteuid()));
        let again = sharing_by(Some(first.clone()), &shared(), None).unwrap().unwrap();
        assert_eq!(again, first);
        let none = sharing_by(Some(first.clone()), &shared(), Some(Shares::new())).unwrap();
        assert!(none.unwrap().shares.is_empty());
    }
}
