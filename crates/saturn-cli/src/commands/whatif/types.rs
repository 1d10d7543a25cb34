//! `saturn whatif --type`: a workload on several types of GPU.
//!
//! On a type on which nothing was measured, every step lies between two bounds: ratios of data
//! sheets. So each size is planned twice, with every step as fast and as slow as the bounds allow.

use saturn_core::names::escape_terminal;
use saturn_core::{Node, Problem};
use saturn_estimate::{Device, Ratio};
use saturn_solver::{Clock, Sized, solve_sizes};
use saturn_store::with_causes;
use saturn_view::whatif_types::{
    OfType, StepRatio, TypeLeftOut, TypeSize, VERSION, WhatifTypes, cheapest,
};
use saturn_view::whatif_types_text;

use super::UntilStopped;
use super::read::{Input, Other, Posed, Refused};
use crate::args::WhatifArgs;
use crate::exit::{Exit, fail, print_data};
use crate::interrupt::Interrupt;
use crate::screen::Screen;

/// The numbers of nodes if nothing else is asked for: each type has its own rows.
const USUAL_COUNTS: [usize; 4] = [1, 2, 4, 8];

pub(super) fn run(args: &WhatifArgs) -> Exit {
    match answered(args) {
        Ok(whatif) => {
            if args.json {
                print_data(&whatif.to_json());
            } else {
                let screen = Screen::stdout();
                let text = whatif_types_text(&whatif, screen.size().0, screen.paint);
                print_data(&(text + "\n"));
            }
            match (whatif.is_partial, whatif.is_late() || whatif.fits_nowhere()) {
                (true, _) => Exit::Interrupted,
                (false, true) => Exit::Infeasible,
                (false, false) => Exit::Ok,
            }
        }
        Err(exit) => exit,
    }
}

fn answered(args: &WhatifArgs) -> Result<WhatifTypes, Exit> {
    if args.out.is_some() {
        return Err(fail(Exit::BadInput, "--out draws one type only: leave out --type or --out"));
    }
    let input = Input::read(args)?;
    let from = measured_on(args, &input)?;
    let interrupt = Interrupt::catch();
    let mut types: Vec<OfType> = Vec::new();
    let mut left_out: Vec<TypeLeftOut> = Vec::new();
    let mut first_exit = None;
    let mut is_partial = false;
    for (index, to) in args.types.iter().enumerate() {
        if args.types[..index].iter().any(|before| before.name == to.name) {
            continue;
        }
        let gpus = args.gpus.unwrap_or_else(|| to.node_size());
        let price = args.price.as_ref().and_then(|price| price.of(&to.name));
        let of_file = || input.price_per_hour(gpus).filter(|_| to.name == from.name);
        let price = price.or_else(of_file);
        let of_type = Typed { args, input: &input, from: &from, to, interrupt: &interrupt };
        let (found, is_whole) = match of_type.answered(price) {
            Ok(answer) => answer,
            Err((Exit::Machine, why)) => return Err(fail(Exit::Machine, why)),
            Err((exit, why)) => {
                first_exit = first_exit.or(Some(exit));
                left_out.push(TypeLeftOut { name: to.name.clone(), why });
                continue;
            }
        };
        types.push(found);
        if !is_whole {
            is_partial = true;
            break;
        }
    }
    if let Some(exit) = first_exit.filter(|_| types.is_empty() && !is_partial) {
        let whys: Vec<String> = left_out.into_iter().map(|one| one.why).collect();
        return Err(fail(exit, whys.join("\nerror: ")));
    }
    Ok(WhatifTypes {
        version: VERSION,
        workload: args.file.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        num_tasks: input.num_tasks(),
        measured_on: from.name.clone(),
        deadline_s: args.deadline,
        reclaimed_every_s: args.spot.then_some(args.reclaimed_every),
        is_partial,
        types,
        left_out,
    })
}

/// The type on which the step times were measured: as it was said, or as the file says.
fn measured_on(args: &WhatifArgs, input: &Input) -> Result<Device, Exit> {
    let name = input.name();
    let found = input.gpu_type();
    if let Some(device) = &args.measured_on {
        let known = found.and_then(Device::like).filter(|known| known.name != device.name);
        let Some(known) = known else { return Ok(device.clone()) };
        let what = format!(
            "{name}: its step times were measured on {}; --measured-on says {}",
            known.name, device.name
        );
        return Err(fail(Exit::BadInput, what));
    }
    let why = match found.map(|found| (found, Device::like(found))) {
        Some((_, Some(device))) => return Ok(device),
        Some((found, None)) => format!(
            "its step times were measured on `{}`, which is not in the table of GPUs",
            escape_terminal(found)
        ),
        None => "it does not say on which GPUs its step times were measured".to_owned(),
    };
    let expected = "name them by --measured-on, such as --measured-on a100-80gb";
    Err(fail(Exit::BadInput, format!("{name}: {why}; {expected}")))
}

/// Why there is no answer for a type, with the exit code.
type Failure = (Exit, String);

/// A workload, and the type of GPU that it is asked about.
struct Typed<'a> {
    args: &'a WhatifArgs,
    input: &'a Input,
    from: &'a Device,
    to: &'a Device,
    interrupt: &'a Interrupt,
}

/// Whether steps are as fast or as slow as the bounds allow.
#[derive(Clone, Copy)]
enum End {
    Fast,
    Slow,
}

impl Typed<'_> {
    fn ratio(&self, technique: &str, gpus: u32) -> Result<Ratio, Failure> {
        let precision = self.args.precision;
        Ratio::of(self.from, self.to, precision, technique, gpus).map_err(|error| {
            let hint = match precision {
                Some(_) => "",
                None => "; say by --precision which arithmetic the tasks use",
            };
            (Exit::BadInput, format!("--type: {error}{hint}"))
        })
    }

    /// The answer, and whether all sizes were planned.
    fn answered(&self, price_per_hour: Option<f64>) -> Result<(OfType, bool), Failure> {
        let gpus = self.args.gpus.unwrap_or_else(|| self.to.node_size());
        let counts = self.args.nodes.clone().map_or(USUAL_COUNTS.to_vec(), |counts| counts.0);
        let bounds = self.bounds(gpus)?;
        let is_measured = self.from.name == self.to.name;
        let (fast, num_left_out, num_across) = self.solved(End::Fast, gpus, &counts)?;
        let slow =
            if is_measured { fast.clone() } else { self.solved(End::Slow, gpus, &counts)?.0 };
        let num_done = fast.len().min(slow.len());
        let end_s = |size: &Sized| size.plan.is_usable().then_some(size.plan.makespan_s);
        let sizes: Vec<TypeSize> = fast
            .iter()
            .zip(&slow)
            .map(|(fast, slow)| {
                let makespans = (end_s(fast), end_s(slow));
                TypeSize::of(fast.nodes, makespans, price_per_hour, self.args.deadline)
            })
            .collect();
        let of_type = OfType {
            name: self.to.name.clone(),
            gpus_per_node: gpus,
            price_per_hour,
            ratio: StepRatio {
                low: bounds.low.0,
                low_by: bounds.low.1,
                high: bounds.high.0,
                high_by: bounds.high.1,
            },
            num_left_out,
            num_across,
            cheapest_nodes: if num_done == counts.len() { cheapest(&sizes) } else { None },
            sizes,
        };
        Ok((of_type, num_done == counts.len()))
    }

    /// The bounds of all strategies together.
    fn bounds(&self, gpus: u32) -> Result<Ratio, Failure> {
        let mut all: Option<Ratio> = None;
        for (technique, gpus) in self.input.strategies(gpus) {
            let one = self.ratio(&technique, gpus)?;
            all = Some(match all {
                None => one,
                Some(all) => Ratio {
                    low: if one.low.0 < all.low.0 { one.low } else { all.low },
                    high: if one.high.0 > all.high.0 { one.high } else { all.high },
                },
            });
        }
        Ok(all.unwrap_or(Ratio::ONE))
    }

    /// Plans by number of nodes; how many strategies were left out because of memory, and because
    /// they were measured across nodes. Types are compared by the same strategies.
    fn solved(
        &self,
        end: End,
        gpus: u32,
        counts: &[usize],
    ) -> Result<(Vec<Sized>, usize, usize), Failure> {
        let needs_memory = self.to.memory_bytes.value < self.from.memory_bytes.value;
        let scale = |technique: &str, gpus: u32| match self.ratio(technique, gpus) {
            Ok(ratio) => match end {
                End::Fast => ratio.low.0,
                End::Slow => ratio.high.0,
            },
            // `bounds` has asked for every ratio before.
            Err(_) => 1.0,
        };
        let memory = needs_memory.then_some(self.to.memory_bytes.value);
        let of_ratios = match end {
            End::Fast => f64::min,
            End::Slow => f64::max,
        };
        let is_measured = self.from.name == self.to.name;
        let is_compared = self.args.types.iter().any(|one| one.name != self.from.name);
        let other = Other { scale: &scale, is_measured, is_compared, of_ratios, memory };
        let posed = self.input.on(gpus, &other);
        let Posed { problem, mut node, num_left_out, num_across } =
            posed.map_err(|refused| self.refused(&refused))?;
        node.gpu_type.clone_from(&self.to.name);
        Ok((self.plans(&problem, &node, counts)?, num_left_out, num_across))
    }

    fn plans(
        &self,
        problem: &Problem,
        node: &Node,
        counts: &[usize],
    ) -> Result<Vec<Sized>, Failure> {
        // Strategies of a problem may name the type that was measured.
        let mut problem = problem.clone();
        for one in problem.tasks.iter_mut().flat_map(|task| &mut task.strategies) {
            one.gpu_type = None;
        }
        let clock: &dyn Clock = &UntilStopped(self.interrupt);
        let seed = self.args.seed;
        solve_sizes(&problem, node, counts, seed, clock, &mut |_| {}).map_err(|error| {
            let error = escape_terminal(&with_causes(&error));
            (Exit::Machine, format!("{}: {error}", self.input.name()))
        })
    }

    /// Tells why a type can't be planned.
    fn refused(&self, refused: &Refused) -> Failure {
        let (to, from) = (&self.to.name, &self.from.name);
        let name = self.input.name();
        match refused {
            Refused::Memory { task, is_known: true } => (
                Exit::Infeasible,
                format!(
                    "{name}: {to} has less memory than {from}: each measured strategy of `{}` took \
                     more than nine tenths of it",
                    escape_terminal(task)
                ),
            ),
            Refused::Memory { task, is_known: false } => (
                Exit::BadInput,
                format!(
                    "{name}: {to} has less memory than {from}, where `{}` was measured, and the file \
                     does not say how much memory the task took; saturn estimate says whether a \
                     model fits",
                    escape_terminal(task)
                ),
            ),
            Refused::Other(exit, why) => (*exit, format!("{name}: on {to}: {why}")),
        }
    }
}
