//! The page of a simulated workload: the table of policies, and their Gantt charts on one time
//! axis.

use maud::{Markup, html};

use crate::html::frame::{Page, section, tile};
use crate::html::gantt::{Bar, Device, Gantt, Mark};
use crate::layout::units::{clock, count, duration};
use crate::phrases::words::{gang_devices, technique_on};
use crate::report::simulated::{Simulated, SimulatedPolicy, cells, columns, spread};

/// Up to so many tasks have a chart: more are a smear.
const MAX_TASKS: usize = 2000;

/// A self-contained page that shows what each policy came to.
pub fn simulated_html(simulated: &Simulated) -> String {
    let body = html! {
        (tiles(simulated))
        (section("Policies", &policies(simulated)))
        (section("Schedules", &schedules(simulated)))
        (section("What they do", &definitions(simulated)))
    };
    let badge = if simulated.is_partial {
        Some(("warn", "stopped early".into()))
    } else {
        simulated.is_endless().then(|| ("warn", "a policy is not done".into()))
    };
    let (title, subtitle) = (&simulated.workload, simulated.headline());
    Page { title, subtitle: &subtitle, badge, num_tasks: simulated.tasks.len(), body }.render()
}

fn longest_s(simulated: &Simulated) -> f64 {
    simulated.policies.iter().filter_map(makespan_s).fold(1e-9, f64::max)
}

/// The mean makespan of a policy that was done under all seeds.
fn makespan_s(policy: &SimulatedPolicy) -> Option<f64> {
    policy.mean.map(|mean| mean.makespan_s)
}

fn tiles(simulated: &Simulated) -> Markup {
    let longest_s = longest_s(simulated);
    let bound_s = simulated.lower_bound_s;
    let policies = simulated.policies.iter();
    let done = policies.filter_map(|policy| Some((policy, makespan_s(policy)?)));
    let best = done.min_by(|a, b| a.1.total_cmp(&b.1));
    html! {
        div.tiles {
            @if let Some((best, best_s)) = best {
                (tile(
                    "Shortest",
                    &duration(best_s),
                    &best.name,
                    Some(("main", best_s / longest_s)),
                    "the least mean makespan of these policies",
                ))
            }
            (tile(
                "Lower bound",
                &duration(bound_s),
                simulated.meaning_of_bound(),
                Some(("bound", bound_s / longest_s)),
                "proven",
            ))
        }
    }
}

fn policies(simulated: &Simulated) -> Markup {
    let longest_s = longest_s(simulated);
    let has_spread = simulated.policies.iter().any(|policy| policy.runs.len() > 1);
    html! {
        p.note {
            "On a virtual clock, by step times that are given: nothing here was run. Launches, "
            "checkpoints and trials cost every policy the same."
        }
        @for warning in simulated.warnings() { p.note { (warning) } }
        div.scroll {
            table {
                thead {
                    tr {
                        th { "policy" } th {}
                        @for (index, (name, tip)) in columns(simulated).iter().enumerate() {
                            th.n title=(tip) { (name) }
                            @if index == 0 && has_spread {
                                th.n title="the shortest and the longest makespan of its seeds" { "from–to" }
                            }
                        }
                    }
                }
                tbody {
                    @for policy in &simulated.policies {
                        tr {
                            td { b { (policy.name) } }
                            td {
                                div.share.wide {
                                    i.main style=(format!("width:{:.1}%", makespan_s(policy).unwrap_or_default() / longest_s * 100.0)) {}
                                }
                            }
                            @for (index, cell) in cells(policy).iter().enumerate() {
                                td.n { (cell) }
                                @if index == 0 && has_spread { td.n { (spread(policy)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn schedules(simulated: &Simulated) -> Markup {
    if simulated.tasks.len() > MAX_TASKS {
        return html! { p.note { "More than " (MAX_TASKS) " tasks are not drawn." } };
    }
    let ends = simulated.policies.iter().flat_map(|policy| &policy.bars).map(|bar| bar.end_s);
    let to_s = ends.fold(1e-9, f64::max);
    html! {
        p.note {
            "All on one axis. A task has the same look in every chart; pale bars are trials, and a bar's "
            "pale beginning is loading."
            @if simulated.seeds > 1 { " Of the first seed." }
        }
        @for policy in simulated.policies.iter().filter(|policy| !policy.bars.is_empty()) {
            h3 {
                (policy.name) " "
                span.note { @if let Some(run) = policy.runs.first() { (duration(run.makespan_s)) } }
            }
            (chart(simulated, policy, to_s).markup())
        }
    }
}

fn chart(simulated: &Simulated, policy: &SimulatedPolicy, to_s: f64) -> Gantt {
    // The chart is of the first seed.
    let bound_s = policy.runs.first().map_or(simulated.lower_bound_s, |run| run.lower_bound_s);
    let nodes = &simulated.nodes;
    let devices = nodes.iter().enumerate().flat_map(|(node, spec)| {
        (0..spec.gpus).map(move |id| Device {
            node,
            node_name: if nodes.len() > 1 { spec.name.clone() } else { String::new() },
            id,
        })
    });
    let bars = policy.bars.iter().map(|bar| {
        let name = simulated.tasks.get(bar.task).map_or("?", String::as_str);
        let strategy = technique_on(&bar.technique, bar.gpus);
        let what = if bar.is_trial { "trial of " } else { "" };
        Bar {
            task: bar.task,
            label: name.to_owned(),
            detail: strategy.clone(),
            tip: format!(
                "{what}{strategy}\n{} → {}  ({})",
                clock(bar.start_s),
                clock(bar.end_s),
                duration(bar.end_s - bar.start_s),
            ),
            class: if bar.is_trial { "trial" } else { "" },
            devices: gang_devices(&bar.gang),
            start_s: bar.start_s,
            end_s: bar.end_s,
            ready_s: bar.ready_s,
        }
    });
    Gantt {
        title: format!("{} under {}", count(simulated.tasks.len(), "task"), policy.name),
        devices: devices.collect(),
        bars: bars.collect(),
        marks: vec![Mark {
            at_s: bound_s,
            label: "lower bound".to_owned(),
            tip: format!("lower bound {}", duration(bound_s)),
            class: "bound",
        }],
        to_s,
        live: None,
    }
}

fn definitions(simulated: &Simulated) -> Markup {
    html! {
        div.scroll {
            table {
                thead { tr { th { "policy" } th { "what it does" } th { "source" } } }
                tbody {
                    @for policy in &simulated.policies {
                        tr {
                            td { (policy.name) }
                            td.why { (policy.definition) }
                            td.why { (policy.source) }
                        }
                    }
                }
            }
        }
    }
}
