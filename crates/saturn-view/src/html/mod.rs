//! Self-contained pages: the report of a run, a comparison of runs, a plan alone, policies on a
//! simulated workload, and a workload on pools of several sizes.
//!
//! `frame` is what every page has; `run`, `comparison`, `plan`, `simulated` and `whatif` are the pages. Other
//! files are their sections and charts, of which `parts` holds the smallest.
//!
//! Charts are drawn in the browser. Rust puts the data of a chart into the page as JSON, with all
//! words as they are to be read (`charts`). One script on every page draws all charts when the page
//! opens (`script/`). `draw.js` makes SVG elements. `gantt.js`, `curves.js` and `parallel.js` each
//! draw a kind of chart. `charts.js` finds the elements that hold data, and `page.js` answers the
//! pointer. Without scripts a sentence stands for each chart, and tables are as they were.
//!
//! `live` is the frame of the pages that `saturn web` serves, with `runs`, `board` (a run, with its
//! tables in `board_tables` and `board_people`) and `task`.
//! Their script also reads the page again when something happens (`script/live.js`), and sends
//! commands.
//!
//! Invariants: a page needs no network, says so in its content security policy, and runs no script
//! but its own. All text from users and workers is escaped, since markup comes only from templates.
//!
//! May use: every room before it.

pub(crate) mod board;
pub(crate) mod board_people;
pub(crate) mod board_tables;
pub(crate) mod charts;
pub(crate) mod choices;
pub(crate) mod colours;
pub(crate) mod comparison;
pub(crate) mod curves;
pub(crate) mod device_time;
pub(crate) mod evaluations;
pub(crate) mod frame;
pub(crate) mod gantt;
pub(crate) mod live;
pub(crate) mod losses;
pub(crate) mod overview;
pub(crate) mod parameters;
pub(crate) mod parts;
pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod schedule;
pub(crate) mod simulated;
pub(crate) mod tables;
pub(crate) mod task;
pub(crate) mod trials;
pub(crate) mod whatif;
