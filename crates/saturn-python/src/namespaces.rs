//! Which names of modules and classes stand for another object than before.
//!
//! A rank is a fork of the warm parent, and shares its memory until one of them writes there. Python
//! code that compares two namespaces counts references to the objects in them. A count is written
//! into its object, so the rank would get a copy of every page of memory that has such an object.
//! Here objects are compared by their addresses, and no references are counted.
//!
//! An object that replaces another has another address, because it was made while the first was still
//! there. Only a third object can have the first one's address again.

use std::collections::BTreeMap;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A snapshot of namespaces: dictionaries whose keys are names.
#[pyclass(frozen)]
pub(crate) struct Namespaces {
    spaces: Vec<(Py<PyDict>, Vec<Entry>)>,
    /// The address of the type of Python functions.
    function: usize,
}

/// A name and its object, both by address.
#[derive(Clone, Copy, PartialEq)]
struct Entry {
    name: usize,
    object: usize,
    is_code: bool,
}

#[pymethods]
impl Namespaces {
    #[new]
    fn new(py: Python<'_>, spaces: Vec<Bound<'_, PyDict>>) -> PyResult<Self> {
        let function = py.import("types")?.getattr("FunctionType")?.as_ptr() as usize;
        let taken = |space: Bound<'_, PyDict>| {
            let entries = entries(&space, function);
            (space.unbind(), entries)
        };
        Ok(Self { spaces: spaces.into_iter().map(taken).collect(), function })
    }

    /// (number of the namespace, name, address of its object then, whether that was a function or
    /// class) for each name that has another object now. The name is None where it is gone.
    fn changed(&self, py: Python<'_>) -> Vec<(usize, Option<String>, usize, bool)> {
        let mut found = Vec::new();
        for (number, (space, before)) in self.spaces.iter().enumerate() {
            let space = space.bind(py);
            let now = entries(space, self.function);
            if now.starts_with(before) {
                continue;
            }
            let now: BTreeMap<_, _> = now.iter().map(|entry| (entry.name, entry.object)).collect();
            for entry in before {
                let object = now.get(&entry.name);
                if object != Some(&entry.object) {
                    let name = object.and_then(|_| name_at(space, entry.name));
                    found.push((number, name, entry.object, entry.is_code));
                }
            }
        }
        found
    }
}

/// The entries of a namespace, in its order.
#[expect(unsafe_code, reason = "safe iteration counts references")]
fn entries(space: &Bound<'_, PyDict>, function: usize) -> Vec<Entry> {
    let mut found = Vec::with_capacity(space.len());
    let (mut position, mut name, mut object) = (0, std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: this thread is attached to the interpreter and runs no Python code in the loop, so the
    // dictionary stays as it is, and its names and objects stay alive.
    unsafe {
        while ffi::PyDict_Next(space.as_ptr(), &raw mut position, &raw mut name, &raw mut object)
            != 0
        {
            let is_code =
                ffi::Py_TYPE(object) as usize == function || ffi::PyType_Check(object) != 0;
            found.push(Entry { name: name as usize, object: object as usize, is_code });
        }
    }
    found
}

/// The name at an address among the names of a namespace, in words.
fn name_at(space: &Bound<'_, PyDict>, address: usize) -> Option<String> {
    space.keys().iter().find(|name| name.as_ptr() as usize == address).map(|name| name.to_string())
}
