//! What a run says of a time in which its driver stood still and heard nothing.

use saturn_engine::{Purpose, Record};
use saturn_view::{DeviceUse, Paint, Report};

use crate::console::printed;
use crate::scripted::{Script, strategy};

/// A task trains from 17.4 s to 62 s, for which 20.5 s were planned. The driver stands still for so
/// many seconds before it hears of the end.
fn trained(standstill_s: Option<f64>) -> Script {
    let mut script = Script::new();
    script.trials();
    script.plan();
    let attempt = script.launch(17.4, 0, Purpose::Train, strategy("ddp", 1), &[0]);
    script.tell(17.9, Record::Started { attempt, step: 0, setup_s: 0.5 });
    if let Some(for_s) = standstill_s {
        script.tell(62.0, Record::StoodStill { for_s });
    }
    let saved =
        Record::Checkpointed { attempt, step: 400, save_s: 9.0, blocked_s: 9.0, loss: None };
    script.tell(62.0, saved);
    script.end(attempt, 400, 0.05, 62.0);
    script
}

fn report(script: &Script) -> Report {
    Report::build(&script.state, &script.history, "run", Vec::new())
}

#[test]
fn a_time_in_which_the_driver_stood_still_is_compared_with_no_plan() {
    let error_of = |script: &Script| report(script).tasks[0].estimate_error;
    let is_told =
        |script: &Script| printed(script, Paint::PLAIN).contains("(planned 21 s, +117.6 %)");
    let num_ratios = |script: &Script| {
        let errors = script.history.forecast_errors();
        (errors.waiting.len(), errors.training.len())
    };
    for standstill_s in [None, Some(0.4)] {
        let heard = trained(standstill_s);
        assert!(error_of(&heard).is_some_and(|error| error > 1.1));
        assert!(is_told(&heard), "{}", printed(&heard, Paint::PLAIN));
    }
    assert_eq!(num_ratios(&trained(None)), (1, 1));
    let unheard = trained(Some(40.0));
    assert_eq!(error_of(&unheard), None);
    assert_eq!(num_ratios(&unheard), (0, 0));
    let words = printed(&unheard, Paint::PLAIN);
    assert!(!words.contains("(planned"), "{words}");
    assert!(words.contains("the run's driver stood still for 40 s, and heard nothing"), "{words}");
    let told = "400 steps in 45 s (the run's driver stood still for 40 s of it)";
    assert!(words.contains(told), "{words}");
}

#[test]
fn a_standstill_of_the_driver_is_a_use_of_its_own_of_all_devices() {
    let used_s = |script: &Script, one: DeviceUse| {
        let uses = report(script).device_time.uses;
        uses.iter().filter(|used| used.what == one).fold(0.0, |sum, used| sum + used.seconds)
    };
    let (heard, unheard) = (trained(None), trained(Some(40.0)));
    assert!((used_s(&unheard, DeviceUse::StoodStill) - 80.0).abs() < 1e-9);
    // Of the 44.1 s until the end was heard, 9 s were for a checkpoint.
    assert!((used_s(&heard, DeviceUse::Trains) - 35.1).abs() < 1e-9);
    // Nobody knows when the checkpoint was written: not after the standstill.
    assert!((used_s(&unheard, DeviceUse::Trains) - 4.1).abs() < 1e-9);
    let all_s = |script: &Script| report(script).device_time.all_s;
    assert!((all_s(&heard) - all_s(&unheard)).abs() < 1e-9);
}
