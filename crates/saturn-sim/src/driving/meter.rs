//! The cost of an engine's decisions on the caller's clock. The clock is read so often that the
//! time of a reading is measured too.

use std::collections::BTreeMap;

use saturn_engine::{Event, RankReport};

/// The number of readings that measure the time of a reading.
const NUM_READINGS: u32 = 10_000;
/// More than the last cache of most processors holds.
const DISPLACING_BYTES: usize = 64 << 20;
/// A cache line, bytes.
const LINE_BYTES: usize = 64;
/// If caches are emptied, every so manyeth event is measured, since to empty them takes milliseconds.
const COLD_EVERY: u64 = 2;
/// Enough for the allocator to look at all free memory, and too little for a mapping of its own.
const SETTLING_BYTES: usize = 64 << 10;
/// Requests for memory before each event. glibc puts at most 10,000 freed pieces in order for each request,
/// and judging a plan of 50,000 tasks frees more than 10,000.
const SETTLINGS: usize = 64;

/// The time of the engine's decisions, and of the solver's answers, on the caller's clock.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) clock: fn() -> f64,
    /// Seconds of one reading of the clock. Each measured span is too long by about as much.
    reading_s: f64,
    /// Empties the processor's caches before each measured event, if that was asked for.
    emptier: Option<CacheEmptier>,
    pub(crate) cost: Cost,
}

impl Meter {
    pub(crate) fn new(clock: fn() -> f64) -> Self {
        let began_s = clock();
        for _ in 1..NUM_READINGS {
            clock();
        }
        let reading_s = (clock() - began_s) / f64::from(NUM_READINGS);
        Self { clock, reading_s, emptier: None, cost: Cost::default() }
    }

    /// From now on each measured event finds the processor's caches empty.
    pub(crate) fn empty_caches(&mut self) {
        let words = vec![1; DISPLACING_BYTES / size_of::<u64>()];
        self.emptier = Some(CacheEmptier { words, num_events: 0 });
    }

    /// Prepares for the next event. Returns whether that event is measured.
    pub(crate) fn prepare(&mut self) -> bool {
        self.emptier.as_mut().is_none_or(CacheEmptier::prepare)
    }

    /// Has the allocator put in order what was freed so far, and counts that as planning.
    ///
    /// glibc puts this off until somebody asks for more than a kilobyte. A solve frees by far the
    /// most, and the first event after the solve would pay for that.
    pub(crate) fn settle_memory(&mut self) {
        let began_s = (self.clock)();
        for _ in 0..SETTLINGS {
            drop(std::hint::black_box(Vec::<u8>::with_capacity(SETTLING_BYTES)));
        }
        self.cost.planning_s += self.since_s(began_s);
    }

    /// Seconds since a reading of the clock.
    pub(crate) fn since_s(&mut self, began_s: f64) -> f64 {
        self.cost.clock_s += 2.0 * self.reading_s;
        (self.clock)() - began_s - self.reading_s
    }
}

/// Empties the processor's caches: goes through data that displaces the engine's data.
#[derive(Debug)]
struct CacheEmptier {
    words: Vec<u64>,
    num_events: u64,
}

impl CacheEmptier {
    /// Empties the caches if the next event is measured. Returns whether it is.
    fn prepare(&mut self) -> bool {
        self.num_events += 1;
        let is_measured = self.num_events.is_multiple_of(COLD_EVERY);
        if is_measured {
            for word in self.words.iter_mut().step_by(LINE_BYTES / size_of::<u64>()) {
                *word = word.wrapping_mul(3);
            }
            std::hint::black_box(&self.words);
        }
        is_measured
    }
}

/// Seconds of the caller's clock that engine and solver took, without reading the clock.
#[derive(Debug, Clone, Default)]
pub struct Cost {
    /// For events that neither ask for a plan, nor answer with a plan, nor extend it.
    pub events_s: f64,
    /// The number of these events.
    pub num_events: u64,
    /// The same for each kind of event: seconds, and the number of events.
    pub of_kinds: BTreeMap<&'static str, (f64, u64)>,
    /// For events that do: the problem is built, answers are judged, a plan is extended. And for the
    /// allocator, which puts in order what they have freed.
    pub planning_s: f64,
    /// The number of these events.
    pub num_plannings: u64,
    /// The longest of them.
    pub longest_planning_s: f64,
    /// For the solver's answers.
    pub solver_s: f64,
    /// For reading the clock.
    pub clock_s: f64,
}

/// What an event tells, in a word or two.
pub(crate) fn kind_of(event: &Event) -> &'static str {
    let report = match event {
        Event::Begin { .. } | Event::Resume { .. } | Event::DriverStarted { .. } => return "begin",
        Event::Undead { .. } => return "undead",
        Event::NodeJoined { .. } => return "node joined",
        Event::NodeLeft { .. } => return "node left",
        Event::LaunchFailed { .. } => return "launch failed",
        Event::Reported { report, .. } => report,
        Event::RankExited { .. } => return "rank exited",
        Event::Solved { .. } => return "solved",
        Event::Command { .. } | Event::Interrupt => return "command",
        Event::SpaceFreed => return "space freed",
        Event::UsedOutside { .. } => return "used outside",
        Event::OwnerLeft { .. } | Event::OwnerCame { .. } | Event::Shared { .. } => {
            return "people";
        }
        Event::StoodStill { .. } => return "stood still",
        Event::Tick => return "tick",
    };
    match report {
        RankReport::Alive => "alive",
        RankReport::Progress { .. } => "progress",
        RankReport::Started { .. } => "started",
        RankReport::Checkpoint { .. } => "checkpoint",
        RankReport::Evaluated { .. } => "evaluated",
        RankReport::Inspected { .. } => "inspected",
        RankReport::Trial { .. } => "trial",
        RankReport::Finished { .. } => "finished",
        RankReport::Stopped { .. } => "stopped",
        RankReport::Failed { .. } => "failed",
        RankReport::Note { .. } => "note",
    }
}
