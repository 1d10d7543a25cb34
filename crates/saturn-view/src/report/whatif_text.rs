//! The table of `saturn whatif` for a terminal, and the cells that the page has too.

use saturn_core::names::escape_terminal;

use crate::layout::paint::Paint;
use crate::layout::text::{Align, Table, bar};
use crate::layout::units::{duration, percent, significant};
use crate::report::whatif::{Size, Whatif};

/// Columns of a bar.
const BAR: usize = 16;

/// Columns of the table behind the number of nodes, with what each says.
pub(crate) const COLUMNS: [(&str, &str); 7] = [
    ("makespan", "when the last task is done"),
    ("longest ends", "when the longest task is done"),
    ("lower bound", "no plan ends earlier"),
    ("node-hours", "hours times nodes: all are held until the last task is done"),
    ("cost", "node-hours times the price of one"),
    ("in use", "share of the GPUs' time until the last task is done that tasks hold"),
    ("a node saves", "how much each node more than in the previous row shortens the makespan"),
];

/// The cells of a size, in the order of [`COLUMNS`].
pub(crate) fn cells(size: &Size) -> [String; 7] {
    let Some(planned) = &size.planned else { return Default::default() };
    [
        duration(planned.makespan_s),
        planned.longest_ends_s.map(duration).unwrap_or_default(),
        duration(planned.lower_bound_s),
        significant(planned.node_hours),
        planned.cost.map(|cost| format!("{cost:.2}")).unwrap_or_default(),
        percent(planned.utilisation),
        planned.saved_per_node_s.map(duration).unwrap_or_default(),
    ]
}

/// The longest makespan of all sizes, seconds.
pub(crate) fn most_s(whatif: &Whatif) -> f64 {
    let all = whatif.rows().into_iter().filter_map(|(size, _)| size.planned);
    all.map(|planned| planned.makespan_s).fold(1e-9, f64::max)
}

/// The table for a terminal, with a bar for each makespan. The last line has no line end.
pub fn whatif_text(whatif: &Whatif, max_width: usize, paint: Paint) -> String {
    let [makespan, rest @ ..] = COLUMNS;
    let mut columns = vec![("nodes", Align::Right), (makespan.0, Align::Right), ("", Align::Left)];
    columns.extend(rest.iter().map(|(name, _)| (*name, Align::Right)));
    columns.push(("", Align::Left));
    let mut table = Table::new(columns);
    let most_s = most_s(whatif);
    let rows = whatif.rows();
    for (size, marks) in &rows {
        let [makespan, rest @ ..] = cells(size);
        let length =
            size.planned.map(|planned| bar(planned.makespan_s / most_s, BAR, Paint::PLAIN));
        let mut row = vec![size.nodes.to_string(), makespan, length.unwrap_or_default()];
        row.extend(rest);
        row.push(marks.clone());
        table.push(row);
    }
    let name = paint.bold(&escape_terminal(&whatif.asked.workload));
    let mut lines = vec![format!("{name}: {}", whatif.headline()), String::new()];
    let is_best = |row: usize| {
        let size = rows.get(row).map(|(size, _)| *size);
        let nodes = size.filter(|size| whatif.is_size(size)).map(|size| size.nodes);
        nodes.is_some()
            && (nodes == whatif.cheapest_nodes || nodes == whatif.knee.map(|one| one.nodes))
    };
    lines.extend(table.without_empty_columns().lines(max_width, paint, |row, column, cell| {
        match column {
            2 => paint.dim(cell),
            0 if is_best(row) => paint.bold(cell),
            _ => cell.to_owned(),
        }
    }));
    lines.push(String::new());
    let (answers, warnings) = whatif.answers();
    lines.extend(answers);
    lines.extend(warnings.iter().map(|warning| paint.warn(warning)));
    lines.join("\n").trim_end().to_owned()
}
