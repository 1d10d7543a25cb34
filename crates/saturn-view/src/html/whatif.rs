//! The page of a workload on pools of several sizes: answers, a table, and charts by number of nodes.

use maud::{Markup, html};

use crate::html::curves::{Chart, ChartSize, Curve};
use crate::html::frame::{Page, section, tile};
use crate::html::parts::task_class;
use crate::layout::units::{axis_unit, count, duration};
use crate::report::metrics::LossPoint;
use crate::report::whatif::{HOUR_S, Planned, Size, Whatif};
use crate::report::whatif_text::{COLUMNS, cells, most_s};

/// Looks that the curves need.
const NUM_LOOKS: usize = 5;

/// A self-contained page that shows what each number of nodes comes to.
pub fn whatif_html(whatif: &Whatif) -> String {
    let (answers, warnings) = whatif.answers();
    let body = html! {
        (tiles(whatif))
        @for answer in answers.iter().chain(&warnings) { p.note { (answer) } }
        (section("By number of nodes", &charts(whatif)))
        (section("Sizes", &sizes(whatif)))
        (section("What it means", &meaning(whatif)))
    };
    let badge = if whatif.is_partial {
        Some(("warn", "stopped early".into()))
    } else {
        whatif.is_late().then(|| ("warn", "no size is in time".into()))
    };
    let (title, subtitle) = (&whatif.asked.workload, whatif.headline());
    Page { title, subtitle: &subtitle, badge, num_tasks: NUM_LOOKS, body }.render()
}

fn tiles(whatif: &Whatif) -> Markup {
    let most_s = most_s(whatif);
    let of = |name: &str, nodes: Option<usize>, tip: &str| {
        let nodes = nodes?;
        let makespan_s = whatif.planned(nodes)?.makespan_s;
        let share = Some(("main", makespan_s / most_s));
        Some(tile(name, &count(nodes, "node"), &duration(makespan_s), share, tip))
    };
    let longest = &whatif.longest;
    let cheapest = match whatif.asked.deadline_s {
        Some(_) => "Cheapest in time",
        None => "Cheapest",
    };
    html! {
        div.tiles {
            @if let Some(knee) = of(
                "Knee",
                whatif.knee.map(|knee| knee.nodes),
                "where node-hours times makespan is least",
            ) { (knee) }
            @if let Some(tile) = of(cheapest, whatif.cheapest_nodes, "the fewest node-hours") { (tile) }
            (tile(
                "Longest task",
                &duration(longest.fastest_s),
                &longest.task,
                Some(("bound", longest.fastest_s / most_s)),
                "its fastest strategy: no number of nodes ends earlier",
            ))
        }
    }
}

fn charts(whatif: &Whatif) -> Markup {
    let points = |of: &dyn Fn(&Planned) -> Option<f64>| -> Vec<LossPoint> {
        let sizes = whatif.sizes.iter();
        sizes.filter_map(|size| Some((size.nodes as u64, of(size.planned.as_ref()?)?))).collect()
    };
    let (unit, unit_s) = axis_unit(most_s(whatif));
    let makespans = points(&|planned| Some(planned.makespan_s / unit_s));
    let (Some(first), Some(last)) = (makespans.first().copied(), makespans.last().copied()) else {
        return Markup::default();
    };
    let flat = |seconds: f64| [first, last].map(|(nodes, _)| (nodes, seconds / unit_s)).to_vec();
    // An upright line, from the least value to the greatest.
    let knee_of = |all: &[LossPoint]| -> Option<Curve<'static>> {
        let nodes = whatif.knee?.nodes as u64;
        let values = || all.iter().map(|point| point.1);
        let ends = [values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max)];
        Some(curve(4, "knee", ends.map(|value| (nodes, value)).to_vec()))
    };
    let knee = knee_of(&makespans);
    let mut times = vec![
        curve(0, "makespan", makespans),
        curve(1, "lower bound", points(&|planned| Some(planned.lower_bound_s / unit_s))),
        curve(2, "longest task", flat(whatif.longest.fastest_s)),
    ];
    times.extend(whatif.asked.deadline_s.map(|s| curve(3, "deadline", flat(s))));
    times.extend(knee);
    let (price_name, prices) = if whatif.asked.price_per_hour.is_some() {
        ("cost".to_owned(), points(&|planned| planned.cost))
    } else {
        let node_times = points(&|planned| Some(planned.node_hours * HOUR_S / unit_s));
        (format!("node-{unit}"), node_times)
    };
    let knee = knee_of(&prices);
    let mut costs = vec![curve(0, &price_name, prices)];
    costs.extend(knee);
    let charts = [
        (unit, format!("The {unit} until the last task is done"), times),
        (price_name.as_str(), format!("The {price_name} of all nodes until then"), costs),
    ];
    html! {
        div.multiples {
            @for (unit, title, curves) in charts {
                @let label = format!("{unit} by number of nodes");
                div {
                    h3 { (title) }
                    (Chart { label, size: ChartSize::Small, is_noisy: false, axis: "nodes", curves }.markup())
                }
            }
        }
    }
}

fn curve(look: usize, name: &str, points: Vec<LossPoint>) -> Curve<'_> {
    Curve { key: look.to_string(), class: task_class(look), name, points, value: None }
}

fn sizes(whatif: &Whatif) -> Markup {
    let most_s = most_s(whatif);
    let has_cost = whatif.asked.price_per_hour.is_some();
    let is_run = whatif.asked.run.is_some();
    let is_shown = |column: &usize| match COLUMNS[*column].0 {
        "cost" => has_cost,
        "longest ends" => is_run,
        _ => true,
    };
    let columns: Vec<usize> = (0..COLUMNS.len()).filter(is_shown).collect();
    let rows = whatif.rows();
    let share = |size: &Size| size.planned.map_or(0.0, |one| one.makespan_s / most_s * 100.0);
    html! {
        div.scroll {
            table {
                thead {
                    tr {
                        th.n { "nodes" } th.n { "GPUs" } th {}
                        @for column in &columns { th.n title=(COLUMNS[*column].1) { (COLUMNS[*column].0) } }
                        th {}
                    }
                }
                tbody {
                    @for (size, marks) in &rows {
                        tr.chosen[whatif.cheapest_nodes == Some(size.nodes) && whatif.is_size(size)] {
                            td.n { b { (size.nodes) } }
                            td.n { (size.gpus) }
                            td {
                                div.share.wide {
                                    i.main style=(format!("width:{:.1}%", share(size))) {}
                                }
                            }
                            @let cells = cells(size);
                            @for column in &columns { td.n { (cells[*column]) } }
                            td.marks { (marks) }
                        }
                    }
                }
            }
        }
    }
}

fn meaning(whatif: &Whatif) -> Markup {
    html! {
        @if whatif.asked.run.is_some() {
            p.note {
                "Plans of what is left of the run, by what it has measured: nothing here was run. All "
                "seconds count from now. All nodes are paid from now until the last task is done."
            }
        } @else {
            p.note {
                "Plans by step times that are given: nothing here was run. A plan on fewer nodes is a plan on "
                "more, so the makespan never rises. All nodes are paid until the last task is done."
            }
        }
        p.note {
            "The knee is the size at which node-hours times makespan is least (Eager, Zahorjan and "
            "Lazowska, Speedup versus efficiency in parallel systems, 1989)."
        }
        @if whatif.asked.reclaimed_every_s.is_some() {
            p.note {
                "A reclaimed node is replaced at once; a task loses a launch and half of a checkpoint "
                "interval. Makespans are those of expected runtimes."
            }
        }
    }
}
