//! Planning again at a fixed interval, as in the published Saturn: the code that such policies
//! share.

use saturn_solver::Backend;

use crate::cases::case::SOLVE_S;
use crate::cases::error::PolicyError;
use crate::policies::driver::Driver;
use crate::policies::follow::{follow, places, plan_waiting, time_left_s};

/// Seconds between two plans.
const INTERVAL_S: f64 = 1000.0;
/// Seconds by which a plan must be better to be adopted.
const LEAST_GAIN_S: f64 = 500.0;

/// Follows plans of a backend to the end. The remaining work is planned again at each interval. A
/// plan that is enough better is adopted: then every task stops at a checkpoint and is launched
/// anew. After a change, jobs that don't run are planned at once.
pub(super) fn plan_at_intervals(driver: &mut Driver, backend: Backend) -> Result<(), PolicyError> {
    driver.pass(SOLVE_S)?;
    let case = driver.case;
    let options = case.options(backend, 0);
    let plan = |driver: &mut Driver| {
        let options = driver.short_unless_first(&options);
        plan_waiting(driver, &options, &|_, _| true)
    };
    let mut standing = Vec::new();
    let mut next_s = driver.now_s() + INTERVAL_S;
    loop {
        follow(driver, &mut standing, next_s, &plan)?;
        if driver.is_done() {
            return Ok(());
        }
        next_s += INTERVAL_S;
        let posed = driver.posed(|_, _| true)?;
        if posed.jobs.is_empty() {
            continue;
        }
        let (other, plan) = places(case, &posed, &driver.short_unless_first(&options))?;
        let saves_s = driver.live().map(|live| case.load_and_save_s(live.job).1);
        let stop_s = saves_s.fold(0.0, f64::max);
        if time_left_s(driver, &standing) - (stop_s + plan.makespan_s) >= LEAST_GAIN_S {
            driver.stop(|_| true)?;
            standing = other;
        }
    }
}
