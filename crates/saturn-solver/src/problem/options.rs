//! The options of a solve.

use std::fmt;
use std::str::FromStr;

use saturn_core::{Objective, Plan};

use crate::problem::baselines::Baseline;
use crate::problem::baselines::Pace;
use crate::problem::error::SolveError;

/// How a plan is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// Search, with proofs for small problems.
    #[default]
    Auto,
    /// The exact mixed-integer program in HiGHS; for small problems.
    Milp,
    /// The anytime search alone.
    Search,
    /// One task at a time on each node, on all its GPUs, in the order given.
    CurrentPractice,
    /// Optimus (EuroSys 2018): GPUs one by one to the task that gains most.
    Optimus,
    /// Every task as wide as a node.
    Max,
    /// Every task as narrow as it can be.
    Min,
    /// Strategies, places and order at random.
    Random,
}

impl Backend {
    /// Every value, in the order in which help lists them.
    pub const ALL: &[Self] = &[
        Self::Auto,
        Self::Milp,
        Self::Search,
        Self::CurrentPractice,
        Self::Optimus,
        Self::Max,
        Self::Min,
        Self::Random,
    ];

    /// Its baseline, and whether gangs may share nodes in it.
    pub(crate) fn baseline(self) -> Option<(Baseline, Pace)> {
        match self {
            Self::Auto | Self::Milp | Self::Search => None,
            Self::CurrentPractice => Some((Baseline::CurrentPractice, Pace::OneAtATime)),
            Self::Optimus => Some((Baseline::Optimus, Pace::Packed)),
            Self::Max => Some((Baseline::Max, Pace::Packed)),
            Self::Min => Some((Baseline::Min, Pace::Packed)),
            Self::Random => Some((Baseline::Random, Pace::Packed)),
        }
    }

    /// The name that users type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Milp => "milp",
            Self::Search => "search",
            Self::CurrentPractice => "current-practice",
            Self::Optimus => "optimus",
            Self::Max => "max",
            Self::Min => "min",
            Self::Random => "random",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Backend {
    type Err = SolveError;

    fn from_str(text: &str) -> Result<Self, SolveError> {
        Self::ALL.iter().copied().find(|one| one.name() == text).ok_or_else(|| {
            SolveError::Option {
                option: "solver",
                found: format!("`{text}`"),
                expected: "one of `auto` `milp` `search` `current-practice` `optimus` `max` `min` `random`",
            }
        })
    }
}

/// The options of one solve.
#[derive(Debug, Clone)]
pub struct Options {
    /// How the plan is found.
    pub backend: Backend,
    /// The objective that the plan makes small.
    pub objective: Objective,
    /// Seconds on the caller's clock; a solve ends soon after.
    pub time_limit_s: f64,
    /// Moves of the search in all threads together; the step for early ends may take a twentieth
    /// more. If time does not end the search first, equal options give equal plans. Time also limits
    /// the exact program of `milp`.
    pub max_moves: Option<u64>,
    /// The seed of the random numbers.
    pub seed: u64,
    /// Threads of the search, from 1 to 64.
    pub threads: usize,
    /// Switches that may be planned for each task that states a switch cost; above 0 only with the
    /// makespan and `auto` or `search`.
    pub max_switches: usize,
    /// The part by which a plan with switches must end earlier than the best plan without switches,
    /// from 0 to 1. Otherwise the plan without switches is the answer. If no plan with switches can end
    /// so early, the bound is that of plans without switches.
    pub min_switch_gain: f64,
    /// The part, and the seconds, by which a plan for the makespan must end earlier to move tasks
    /// that run: earlier than the best plan that leaves them all as they run. With 0 for both, no
    /// such plan is looked for, and moves cost only their switch costs.
    pub min_move_gain: f64,
    /// See `min_move_gain`.
    pub min_move_gain_s: f64,
    /// Whether a plan for the makespan also lets each task end early, within that makespan.
    pub has_early_ends: bool,
    /// For weighted completion: plans whose tasks all end within this many times the lower bound of
    /// the makespan come first. If no such plan is found, those with the smallest sum of seconds after
    /// that. The bound of the answer may hold for such plans alone. `None`: the tail does not count.
    pub tail: Option<f64>,
    /// How many times runtimes are drawn, by the `relative_error` of strategies; 0: never. Otherwise a
    /// tenth of the limits goes to further plans, and the answer is the plan with the least 80%
    /// quantile of outcomes. 200 draws are enough. If the limits are too short for so many draws of so
    /// many tasks, the answer is the best plan as planned, and `Plan::robust` is `None`.
    pub draws: usize,
    /// A plan of this problem to start from. The parts that fit are used, others are ignored.
    pub warm_start: Option<Plan>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            backend: Backend::Auto,
            objective: Objective::Makespan,
            time_limit_s: 2.0,
            max_moves: None,
            seed: 0,
            threads: 2,
            max_switches: 0,
            min_switch_gain: 0.0,
            min_move_gain: 0.0,
            min_move_gain_s: 0.0,
            has_early_ends: true,
            tail: None,
            draws: 0,
            warm_start: None,
        }
    }
}

impl Options {
    pub(crate) fn validate(&self) -> Result<(), SolveError> {
        if !(0.0..=1e9).contains(&self.time_limit_s) {
            return Err(SolveError::Option {
                option: "time limit",
                found: self.time_limit_s.to_string(),
                expected: "a number of seconds from 0 to 1e9",
            });
        }
        let plans_switches = matches!(self.backend, Backend::Auto | Backend::Search)
            && self.objective == Objective::Makespan;
        if self.max_switches > 0 && !plans_switches {
            return Err(SolveError::Option {
                option: "max switches",
                found: self.max_switches.to_string(),
                expected: "0, except with `auto` or `search` and the objective `makespan`",
            });
        }
        if !(0.0..=1.0).contains(&self.min_switch_gain) {
            return Err(SolveError::Option {
                option: "min switch gain",
                found: self.min_switch_gain.to_string(),
                expected: "a number from 0 to 1",
            });
        }
        if !(0.0..=1.0).contains(&self.min_move_gain) {
            return Err(SolveError::Option {
                option: "min move gain",
                found: self.min_move_gain.to_string(),
                expected: "a number from 0 to 1",
            });
        }
        if !(0.0..=1e9).contains(&self.min_move_gain_s) {
            return Err(SolveError::Option {
                option: "min move gain seconds",
                found: self.min_move_gain_s.to_string(),
                expected: "a number of seconds from 0 to 1e9",
            });
        }
        let is_for_tail = self.objective == Objective::Completion;
        if let Some(tail) = self.tail
            && !(is_for_tail && (1.0..=1e6).contains(&tail))
        {
            return Err(SolveError::Option {
                option: "tail",
                found: tail.to_string(),
                expected: "a number of at least 1, and the objective `completion`",
            });
        }
        let is_search = self.backend.baseline().is_none();
        if self.draws > 100_000 || self.draws > 0 && !is_search {
            return Err(SolveError::Option {
                option: "draws",
                found: self.draws.to_string(),
                expected: "a number from 0 to 100000; 0 with solvers to compare with",
            });
        }
        if !(1..=64).contains(&self.threads) {
            return Err(SolveError::Option {
                option: "threads",
                found: self.threads.to_string(),
                expected: "a number from 1 to 64",
            });
        }
        Ok(())
    }
}
