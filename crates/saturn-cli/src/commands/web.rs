//! `saturn web`.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use saturn_serve::{App, Keys, Local, NamedRun, listen, router, serve};
use saturn_store::io_words;
use serde_json::json;

use crate::args::WebArgs;
use crate::exit::{Exit, fail, print_data, print_json};
use crate::find::{self, RUNS_DIR};
use crate::interrupt::Interrupt;

pub(crate) fn run(args: &WebArgs) -> Exit {
    let shown = match Shown::of(args.run.as_deref()) {
        Ok(shown) => shown,
        Err(exit) => return exit,
    };
    let listening = match listen(Ipv4Addr::LOCALHOST.into(), args.port) {
        Ok(listening) => listening,
        Err(error) => {
            let taken = error.kind() == ErrorKind::AddrInUse;
            let hint = if taken { "; to take any free port: saturn web --port 0" } else { "" };
            let exit = match error.kind() {
                ErrorKind::AddrInUse | ErrorKind::PermissionDenied => Exit::BadInput,
                _ => Exit::Machine,
            };
            let error = io_words(&error);
            return fail(exit, format!("failed to listen on port {}: {error}{hint}", args.port));
        }
    };
    let (keys, token) = match Keys::new() {
        Ok(keys) => keys,
        Err(error) => {
            let error = io_words(&error);
            return fail(Exit::Machine, format!("failed to make a token: {error}"));
        }
    };
    let interrupt = Interrupt::catch();
    let port = listening.port;
    let address = format!("http://127.0.0.1:{port}");
    // Browsers don't send what follows `#`, so the token stands in no log.
    let url = format!("{address}/login#{token}");
    if args.json {
        print_json(&json!({
            "version": 1, "address": address, "url": url, "token": token, "port": port,
            "pid": std::process::id(),
        }));
    } else {
        print_data(&format!("{url}\n"));
        eprintln!("open this address in a browser on this machine; Ctrl-C ends it, and no run");
        eprintln!("from another machine: ssh -L {port}:127.0.0.1:{port} THIS-MACHINE");
    }
    let source = Local::new(move || shown.find());
    let app = App::new(Arc::new(source), keys, port);
    match serve(listening, &router(Arc::new(app)), || interrupt.came()) {
        Ok(()) => Exit::Ok,
        Err(error) => fail(Exit::Machine, format!("failed to serve: {}", io_words(&error))),
    }
}

/// What is shown.
#[derive(Debug)]
enum Shown {
    /// The pool and the runs in `saturn_runs`, also those that begin later.
    All,
    /// The runs of a directory, also those that begin later.
    In(PathBuf),
    /// One run.
    One(NamedRun),
}

impl Shown {
    fn of(named: Option<&Path>) -> Result<Self, Exit> {
        let Some(named) = named else { return Ok(Self::All) };
        let is_run = find::places(named).iter().any(|path| find::is_run(path));
        if !is_run && named.is_dir() {
            return Ok(Self::In(named.to_owned()));
        }
        let found = find::run(named)?;
        let is_pool = !is_run && named == Path::new(find::POOL);
        // A directory such as `.` has its name after its path is complete.
        let path = found.path.canonicalize().unwrap_or(found.path);
        let name = if is_pool { find::POOL.into() } else { name_of(&path) };
        Ok(Self::One(NamedRun { name, path, is_pool }))
    }

    fn find(&self) -> Vec<NamedRun> {
        match self {
            Self::One(run) => vec![run.clone()],
            Self::In(dir) => all_in(dir),
            Self::All => {
                let pool = find::listed_pool().map(|pool| {
                    let is_hidden = pool.shown != find::POOL;
                    let name = if is_hidden { name_of(&pool.path) } else { find::POOL.to_owned() };
                    NamedRun { name, path: pool.path, is_pool: true }
                });
                pool.into_iter().chain(all_in(Path::new(RUNS_DIR))).collect()
            }
        }
    }
}

fn all_in(dir: &Path) -> Vec<NamedRun> {
    // The default directory of runs may not exist yet.
    let paths = find::all_in(dir).unwrap_or_default();
    let named = |path: PathBuf| NamedRun { name: name_of(&path), path, is_pool: false };
    paths.into_iter().map(named).collect()
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
