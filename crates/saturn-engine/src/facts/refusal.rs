//! Why a request to a run is refused: a code for programs, and words for people.

use serde::{Deserialize, Serialize};

/// Declares the codes: name, text in JSON, and meaning.
macro_rules! codes {
    ($($name:ident $text:literal $means:literal,)+) => {
        /// Why a request to a run is refused. The codes don't change, unlike the words.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub enum RefusalCode {
            $(#[doc = $means] #[serde(rename = $text)] $name,)+
            /// A code of a later version, which this version does not know.
            #[serde(other, rename = "other")]
            Other,
        }

        impl RefusalCode {
            /// Each code as it stands in JSON, and its meaning.
            pub const ALL: &[(&str, &str)] = &[$(($text, $means),)+];
        }
    };
}

codes! {
    NameTaken "name_taken" "the run has a task of this name already",
    NotYours "not_yours" "the command is about a task of another person, or about the whole pool, \
        and you are not the person who drives it",
    UnknownTask "unknown_task" "the run has no task of this name",
    TaskEnded "task_ended" "the task has ended",
    NotPaused "not_paused" "the task is not paused",
    BadOrder "bad_order" "the task would have to come after itself, or after a task that ended \
        without being done",
    BadValue "bad_value" "a value of the command is out of its range",
    NoSuchDevice "no_such_device" "the run has no such node or device",
    OutOfRange "out_of_range" "the task can't train on any number of devices that the run has or \
        waits for",
    Late "late" "a due time can't be kept, by the plan that the run would adopt",
    RunEnded "run_ended" "the run has ended",
    Malformed "malformed" "the process that drives the run does not understand the request",
    OtherVersion "other_version" "the request is of another version",
    Busy "busy" "too many programs are asking the run at once",
    Internal "internal" "the answer could not be computed or written",
}

/// A refused request. It changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Why, for programs.
    pub code: RefusalCode,
    /// Why, and what would be right, in words.
    pub reason: String,
}

impl RefusalCode {
    /// A refusal with this code and these words.
    pub fn because(self, reason: impl Into<String>) -> Refusal {
        Refusal { code: self, reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_of_a_later_version_is_read() {
        let read = |text: &str| serde_json::from_str::<RefusalCode>(text).unwrap();
        assert_eq!(read(r#""name_taken""#), RefusalCode::NameTaken);
        assert_eq!(read(r#""of_tomorrow""#), RefusalCode::Other);
    }

    #[test]
    fn codes_are_listed_as_they_are_written() {
        for (text, _) in RefusalCode::ALL {
            let code: RefusalCode = serde_json::from_str(&format!("\"{text}\"")).unwrap();
            assert_ne!(code, RefusalCode::Other, "{text}");
            assert_eq!(serde_json::to_string(&code).unwrap(), format!("\"{text}\""));
        }
    }
}
