//! The places of a plan, by their differences from the plan before it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use saturn_core::Gang;
use saturn_engine::{Place, TaskId};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// The parts that make up `places`, by the numbers of places in the plan before.
pub(super) fn parts(before: &[Place], places: &[Place]) -> Vec<Part> {
    let mut of_task: BTreeMap<TaskId, Vec<usize>> = BTreeMap::new();
    for (number, place) in before.iter().enumerate() {
        of_task.entry(place.task).or_default().push(number);
    }
    let mut parts = Vec::new();
    for place in places {
        let numbers = of_task.get(&place.task).map_or(&[][..], Vec::as_slice);
        let found = |is_it: &dyn Fn(&Place) -> bool| {
            numbers.iter().copied().find(|number| is_it(&before[*number]))
        };
        if let Some(number) = found(&|one| one == place) {
            match parts.last_mut() {
                Some(Part::Same(first, count)) if *first + *count == number => *count += 1,
                _ => parts.push(Part::Same(number, 1)),
            }
        } else if let Some(number) = found(&|one| moved(one, place.start_s, place.end_s) == *place)
        {
            parts.push(Part::Moved(number, place.start_s, place.end_s));
        } else if let Some(number) = found(&|one| elsewhere(one, place) == *place) {
            parts.push(Part::Elsewhere(number, place.gang.clone(), place.start_s, place.end_s));
        } else {
            parts.push(Part::New(Box::new(place.clone())));
        }
    }
    parts
}

/// The places that parts stand for; `None` if a part has a number beyond the plan before.
pub(super) fn joined(before: &[Place], parts: Vec<Part>) -> Option<Vec<Place>> {
    let mut places = Vec::with_capacity(before.len());
    for part in parts {
        match part {
            Part::Same(first, count) => {
                places.extend_from_slice(before.get(first..first.checked_add(count)?)?);
            }
            Part::Moved(number, start_s, end_s) => {
                places.push(moved(before.get(number)?, start_s, end_s));
            }
            Part::Elsewhere(number, gang, start_s, end_s) => {
                places.push(Place { gang, ..moved(before.get(number)?, start_s, end_s) });
            }
            Part::New(place) => places.push(*place),
        }
    }
    Some(places)
}

pub(super) fn moved(place: &Place, start_s: f64, end_s: f64) -> Place {
    Place { start_s, end_s, ..place.clone() }
}

/// The place `one`, on the devices and at the times of `other`.
fn elsewhere(one: &Place, other: &Place) -> Place {
    Place { gang: other.gang.clone(), ..moved(one, other.start_s, other.end_s) }
}

/// A part of a plan's places. Numbers of places count the places of the plan before.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Part {
    /// Consecutive places, unchanged: the number of the first place, and how many there are.
    Same(usize, usize),
    /// The place of this number, with another start and another end.
    Moved(usize, f64, f64),
    /// The place of this number, on other devices, with another start and another end.
    Elsewhere(usize, Arc<Gang>, f64, f64),
    /// A place that is not in the plan before.
    New(Box<Place>),
}

/// By hand, since a journal has millions of parts: what `serde` derives for `untagged` keeps a copy
/// of each, and makes an error for each kind that it is not.
impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PartVisitor)
    }
}

struct PartVisitor;

impl<'de> Visitor<'de> for PartVisitor {
    type Value = Part;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a place, or the number of a place of the plan before")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Part, A::Error> {
        let mut next = |number| items.next_element()?.ok_or_else(|| too_short(number, &self));
        let (first, second) = (next(0)?, next(1)?);
        let times: (Option<f64>, Option<f64>) = (items.next_element()?, items.next_element()?);
        if items.next_element::<IgnoredAny>()?.is_some() {
            return Err(A::Error::invalid_length(5, &self));
        }
        let Item::Number { whole: Some(number), .. } = first else {
            return Err(A::Error::custom("the number of a place is no whole number"));
        };
        match (second, times) {
            (Item::Number { whole: Some(count), .. }, (None, _)) => Ok(Part::Same(number, count)),
            (Item::Number { real, .. }, (Some(end_s), None)) => {
                Ok(Part::Moved(number, real, end_s))
            }
            (Item::Gang(gang), (Some(start_s), Some(end_s))) => {
                Ok(Part::Elsewhere(number, gang, start_s, end_s))
            }
            _ => Err(A::Error::custom("a part of a plan is none of those that there are")),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Part, A::Error> {
        let place = Place::deserialize(MapAccessDeserializer::new(fields))?;
        Ok(Part::New(Box::new(place)))
    }
}

fn too_short<E: Error>(length: usize, visitor: &PartVisitor) -> E {
    E::invalid_length(length, visitor)
}

/// An item of a part.
enum Item {
    /// A number, and the index that it may be.
    Number {
        whole: Option<usize>,
        real: f64,
    },
    Gang(Arc<Gang>),
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ItemVisitor)
    }
}

struct ItemVisitor;

impl<'de> Visitor<'de> for ItemVisitor {
    type Value = Item;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a number, or the devices of a place")
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "an index is small, and a time that is whole too"
    )]
    fn visit_u64<E: Error>(self, number: u64) -> Result<Item, E> {
        Ok(Item::Number { whole: usize::try_from(number).ok(), real: number as f64 })
    }

    #[expect(clippy::cast_precision_loss, reason = "a time that is whole is small")]
    fn visit_i64<E: Error>(self, number: i64) -> Result<Item, E> {
        Ok(Item::Number { whole: None, real: number as f64 })
    }

    fn visit_f64<E: Error>(self, real: f64) -> Result<Item, E> {
        Ok(Item::Number { whole: None, real })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, placements: A) -> Result<Item, A::Error> {
        Gang::deserialize(SeqAccessDeserializer::new(placements))
            .map(|gang| Item::Gang(gang.into()))
    }
}
