//! The best shares for a given structure, by a linear program.
//!
//! Playing pieces decides which of them wait for which. With these decisions kept, starts, shares
//! and the makespan are a linear program: each piece starts no earlier than the ends that it waits
//! for. Its solution is a plan no longer than the plan before. Playing the pieces anew in the order
//! of its starts can only shorten the plan.

use saturn_core::WHOLE;

use crate::bounds::program::{Effort, Outcome, Program};
use crate::course::clock::Deadline;
use crate::split::pieces::{Piece, Player, settle_shares, stays_first};

/// The smallest share that a piece may have.
pub(crate) const LEAST_SHARE: f64 = 0.01;
/// The most iterations of a program, times its pieces. An iteration takes time in proportion to the
/// pieces, so this is about a second. A limit of one second would let the machine's load choose the
/// plan.
const MOST_WORK: usize = 15_000_000;

/// What the program makes small.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape<'a> {
    /// The end of the last piece.
    Makespan,
    /// The weighted sum of the tasks' ends, none of which may be later than `cap` seconds.
    Ends { cap: f64, weights: &'a [f64] },
}

/// A piece that stays starts at once.
fn latest_start(piece: &Piece) -> f64 {
    if piece.stays() { 0.0 } else { f64::INFINITY }
}

/// The pieces with the best shares for their structure, in the order of their new starts; `None` if
/// HiGHS has no answer.
pub(crate) fn polish(
    player: &Player,
    pieces: &[Piece],
    shape: Shape,
    deadline: Deadline,
) -> Option<Vec<Piece>> {
    let placed = player.trace(pieces);
    // Times in units of the makespan.
    let unit = placed.iter().map(|one| one.end).fold(0.0, f64::max);
    if unit <= 0.0 {
        return None;
    }
    let mut num_pieces = vec![0usize; player.model.tasks.len()];
    for piece in pieces {
        num_pieces[piece.task] += 1;
    }
    let mut program = Program::default();
    let makespan = match shape {
        Shape::Makespan => program.continuous(1.0, 0.0, f64::INFINITY),
        Shape::Ends { cap, .. } => program.continuous(0.0, 0.0, cap / unit),
    };
    // What a second of each piece's end costs.
    let mut weights = vec![0.0; pieces.len()];
    if let Shape::Ends { weights: of_tasks, .. } = shape {
        let mut last: Vec<Option<usize>> = vec![None; of_tasks.len()];
        for (index, piece) in pieces.iter().enumerate() {
            last[piece.task] = Some(index);
        }
        for index in last.into_iter().flatten() {
            weights[index] = of_tasks[pieces[index].task];
        }
    }
    let starts: Vec<_> = pieces
        .iter()
        .zip(&weights)
        .map(|(piece, weight)| program.continuous(*weight, 0.0, latest_start(piece)))
        .collect();
    let shares: Vec<_> = pieces
        .iter()
        .zip(&weights)
        .map(|(piece, weight)| {
            let least = if num_pieces[piece.task] > 1 { LEAST_SHARE } else { WHOLE };
            program.continuous(weight * piece.runtime / unit, least, WHOLE)
        })
        .collect();
    for (index, (piece, one)) in pieces.iter().zip(&placed).enumerate() {
        // end = start + share * runtime + lost
        let runtime = piece.runtime / unit;
        let lost = one.lost / unit;
        program
            .at_least(lost, &[(makespan, 1.0), (starts[index], -1.0), (shares[index], -runtime)]);
        for &before in &one.after {
            let runtime = pieces[before].runtime / unit;
            let lost = placed[before].lost / unit;
            program.at_least(
                lost,
                &[(starts[index], 1.0), (starts[before], -1.0), (shares[before], -runtime)],
            );
        }
    }
    for (task, count) in num_pieces.iter().enumerate() {
        if *count > 1 {
            let own = pieces.iter().zip(&shares).filter(|(piece, _)| piece.task == task);
            let terms: Vec<_> = own.map(|(_, share)| (*share, 1.0)).collect();
            program.equal(WHOLE, &terms);
        }
    }
    let max_iterations = i32::try_from(MOST_WORK / pieces.len().max(1)).ok();
    let effort = Effort { max_iterations, ..Effort::until(deadline) };
    let solved = program.solve(effort);
    let Outcome::Known { columns: Some(columns), .. } = solved else { return None };
    let (starts, shares) = columns[1..].split_at(pieces.len());
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    order.sort_by(|left, right| starts[*left].total_cmp(&starts[*right]));
    let mut polished: Vec<Piece> = order
        .into_iter()
        .map(|index| Piece { share: shares[index].clamp(LEAST_SHARE, WHOLE), ..pieces[index] })
        .collect();
    stays_first(&mut polished);
    settle_shares(&mut polished, player.model.tasks.len());
    Some(polished)
}
