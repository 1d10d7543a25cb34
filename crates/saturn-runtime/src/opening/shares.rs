//! The rules by which people share a pool, as the person who drives the pool says: how large the shares
//! of people are, and how many devices each may hold at once.
//!
//! How these shape plans is the engine's (`saturn_engine::Sharing`).

use std::collections::BTreeMap;

use nix::unistd::{Uid, User, geteuid};
use saturn_engine::Sharing;

use crate::asking::door::login;
use crate::launching::settings::LaunchSettings;
use crate::system::error::RuntimeError;

/// How large people's shares are beside one another, by login name or user id.
pub type Shares = BTreeMap<String, f64>;
/// How many devices people's tasks may hold at once, by login name or user id.
pub type Quotas = BTreeMap<String, u32>;

/// The least and the largest share.
const SIZES: (f64, f64) = (0.001, 1000.0);

/// What is said of the rules; `None`: as before.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// How large people's shares are.
    pub shares: Option<Shares>,
    /// How many devices people's tasks may hold at once.
    pub quotas: Option<Quotas>,
}

/// The rules by which people share a run from here on; `None` if it is not shared. `before`: the rules
/// until now.
pub(crate) fn sharing_by(
    before: Option<Sharing>,
    settings: &LaunchSettings,
    rules: Rules,
) -> Result<Option<Sharing>, RuntimeError> {
    let Rules { shares, quotas } = rules;
    if settings.door.is_none() {
        let has_shares = shares.is_some_and(|shares| !shares.is_empty());
        let has_quotas = quotas.is_some_and(|quotas| !quotas.is_empty());
        let given = has_shares.then_some("shares").or(has_quotas.then_some("quotas"));
        return given.map_or(Ok(None), |what| {
            refused(format!(
                "`{what}` is for a pool that other people join: give `share` too, the directory at which \
                 they join it"
            ))
        });
    }
    for (name, size) in shares.iter().flatten() {
        if !(SIZES.0..=SIZES.1).contains(size) {
            let (least, most) = SIZES;
            return refused(format!(
                "the share of `{name}` is {size}; it must be from {least} to {most}"
            ));
        }
    }
    if let Some((name, _)) = quotas.iter().flatten().find(|(_, quota)| **quota == 0) {
        return refused(format!("the quota of `{name}` is 0; it must be at least 1 device"));
    }
    let shares = shares.map(|shares| by_login("shares", shares)).transpose()?;
    let quotas = quotas.map(|quotas| by_login("quotas", quotas)).transpose()?;
    let before = before.unwrap_or_else(|| Sharing { host: login(geteuid()), ..Sharing::default() });
    Ok(Some(Sharing {
        shares: shares.unwrap_or_else(|| before.shares.clone()),
        quotas: quotas.unwrap_or_else(|| before.quotas.clone()),
        ..before
    }))
}

/// Numbers by login name, from numbers by login name or user id.
fn by_login<T>(
    what: &str,
    numbers: BTreeMap<String, T>,
) -> Result<BTreeMap<String, T>, RuntimeError> {
    let with_login = |(name, number): (String, T)| {
        let account = User::from_name(&name).ok().flatten().map(|user| user.name);
        // There may be people without an account, in a container for example.
        let by_id = || name.parse().ok().map(|uid| login(Uid::from_raw(uid)));
        let Some(login) = account.or_else(by_id) else {
            let reason = format!(
                "`{what}` has `{name}`, which is neither the login name of a person of this machine nor a \
                 user id"
            );
            return Err(RuntimeError::Refused { reason });
        };
        Ok((login, number))
    };
    let num_given = numbers.len();
    let numbers: BTreeMap<String, T> =
        numbers.into_iter().map(with_login).collect::<Result<_, _>>()?;
    if numbers.len() < num_given {
        return refused(format!("`{what}` has one person twice, by login name and by user id"));
    }
    Ok(numbers)
}

fn refused<T>(reason: String) -> Result<T, RuntimeError> {
    Err(RuntimeError::Refused { reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_files::journal::tests::settings;

    fn shared() -> LaunchSettings {
        LaunchSettings { door: Some("/srv/pool".into()), ..settings() }
    }

    fn shares(name: &str, size: f64) -> Rules {
        let shares = Shares::from([(name.to_owned(), size)]);
        Rules { shares: Some(shares), ..Rules::default() }
    }

    fn quotas(name: &str, quota: u32) -> Rules {
        let quotas = Quotas::from([(name.to_owned(), quota)]);
        Rules { quotas: Some(quotas), ..Rules::default() }
    }

    fn error(rules: Rules, settings: &LaunchSettings) -> String {
        sharing_by(None, settings, rules).unwrap_err().to_string()
    }

    #[test]
    fn rules_that_mean_nothing_are_refused() {
        assert!(error(shares("root", 0.0), &shared()).contains("from 0.001 to 1000"));
        assert!(error(shares("root", f64::NAN), &shared()).contains("from 0.001 to 1000"));
        assert!(error(quotas("root", 0), &shared()).contains("at least 1 device"));
        for (rules, what) in [
            (shares("no-such-person", 1.0), "`shares` has `no-such-person`"),
            (quotas("no-such-person", 1), "`quotas` has `no-such-person`"),
        ] {
            assert!(error(rules, &shared()).contains(what));
        }
        assert!(error(shares("root", 1.0), &settings()).contains("`shares` is for a pool"));
        assert!(error(quotas("root", 1), &settings()).contains("`quotas` is for a pool"));
        assert_eq!(sharing_by(None, &settings(), Rules::default()).unwrap(), None);
    }

    #[test]
    fn people_without_an_account_are_named_by_their_ids() {
        let rules = sharing_by(None, &shared(), quotas("4000000001", 2)).unwrap().unwrap();
        assert_eq!(rules.quotas[&login(Uid::from_raw(4_000_000_001))], 2);
        let rules = sharing_by(None, &shared(), quotas("0", 2)).unwrap().unwrap();
        assert_eq!(rules.quotas["root"], 2);
        let both = Quotas::from([("0".to_owned(), 2), ("root".to_owned(), 3)]);
        let both = Rules { quotas: Some(both), ..Rules::default() };
        assert!(error(both, &shared()).contains("one person twice"));
    }

    #[test]
    fn rules_hold_until_others_are_given() {
        let first = sharing_by(None, &shared(), shares("root", 2.0)).unwrap().unwrap();
        assert_eq!(first.host, login(geteuid()));
        let again = sharing_by(Some(first.clone()), &shared(), Rules::default()).unwrap().unwrap();
        assert_eq!(again, first);
        let limited =
            sharing_by(Some(first.clone()), &shared(), quotas("root", 3)).unwrap().unwrap();
        assert_eq!((&limited.shares, limited.quotas["root"]), (&first.shares, 3));
        let none = Rules { shares: Some(Shares::new()), quotas: Some(Quotas::new()) };
        let none = sharing_by(Some(limited), &shared(), none).unwrap().unwrap();
        assert!(none.shares.is_empty() && none.quotas.is_empty());
    }
}
