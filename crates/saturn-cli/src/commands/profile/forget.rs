//! `saturn profile forget`.

use saturn_core::Trial;
use saturn_store::Store;
use saturn_view::units::count;
use serde_json::json;

use super::{Failure, keys, now_unix_s, warn};
use crate::args::ForgetArgs;
use crate::exit::print_json;

pub(super) fn run(store: &Store, args: &ForgetArgs) -> Result<(), Failure> {
    let before_unix_s = args.older_than.map(|age| now_unix_s().saturating_sub(age.0.as_secs()));
    // A trial that doesn't say when it was measured stays.
    let stays = |trial: &Trial| {
        before_unix_s
            .is_some_and(|before| trial.newest_unix_s().is_none_or(|measured| measured >= before))
    };
    let mut num_gone = 0;
    for key in keys(store, &args.keys)? {
        num_gone += store.retain(&key, stays, &mut warn)?;
    }
    if args.json {
        print_json(&json!({"version": 1, "forgotten": num_gone}));
    } else {
        eprintln!("{} forgotten", count(num_gone, "trial"));
    }
    Ok(())
}
