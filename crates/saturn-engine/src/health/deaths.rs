//! The failure of a rank that died without reporting one.

use crate::facts::failure::{FailureKind, RankFailure};

/// The signal that the kernel sends when memory has run out.
const SIGKILL: i32 = 9;

/// The last words of a process that ran out of memory in a thread of a library's own, where nobody
/// catches the error.
const OUT_OF_MEMORY_WORDS: [&str; 2] = ["std::bad_alloc", "can't allocate memory"];

/// The failure of a rank that died without saying why.
pub(crate) fn died(rank: u32, code: i32, last_words: String) -> RankFailure {
    let (kind, error) = if code == -SIGKILL {
        let error = "killed by signal 9, which Saturn did not send".to_owned();
        (FailureKind::Killed, error)
    } else if let Some(words) =
        OUT_OF_MEMORY_WORDS.into_iter().find(|words| code < 0 && last_words.contains(words))
    {
        let error = format!("the process died of signal {}: {words}", -code);
        (FailureKind::OutOfMemory, error)
    } else if code < 0 {
        (FailureKind::Died, format!("the process died of signal {}", -code))
    } else {
        (FailureKind::Died, format!("the process exited with code {code} and reported no error"))
    };
    RankFailure { rank, kind, error, traceback: last_words }
}
