//! `saturn web`.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use saturn_serve::{
    App, Keys, Local, NamedRun, Receiver, Telling, Webhook, What, listen, router, serve,
};
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
    let webhooks = match webhooks(args) {
        Ok(webhooks) => webhooks,
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
    let shown = Arc::new(shown);
    let mut telling = Vec::new();
    for webhook in webhooks {
        let shown = Arc::clone(&shown);
        match Telling::start(webhook, move || shown.find(), |note| eprintln!("{note}")) {
            Ok(one) => telling.push(one),
            Err(why) => return fail(Exit::BadInput, format!("--webhook: {why}")),
        }
    }
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
    let served = serve(listening, &router(Arc::new(app)), || interrupt.came());
    drop(telling);
    match served {
        Ok(()) => Exit::Ok,
        Err(error) => fail(Exit::Machine, format!("failed to serve: {}", io_words(&error))),
    }
}

/// The receivers of webhooks.
fn webhooks(args: &WebArgs) -> Result<Vec<Webhook>, Exit> {
    let read = |path: &Path| {
        std::fs::read_to_string(path).map(|text| text.trim().to_owned()).map_err(|error| {
            fail(Exit::BadInput, format!("failed to read {}: {}", path.display(), io_words(&error)))
        })
    };
    let secret = args.webhook_secret.as_deref().map(read).transpose()?;
    let asked =
        |word: &str| args.webhook_for.is_empty() || args.webhook_for.iter().any(|one| one == word);
    let wanted: BTreeSet<What> =
        What::ALL.into_iter().filter(|(word, _)| asked(word)).map(|(_, what)| what).collect();
    let mut webhooks = Vec::new();
    for address in &args.webhook {
        let address = match address.strip_prefix('@') {
            Some(file) => read(Path::new(file))?,
            None => address.clone(),
        };
        let receiver = Receiver::new(&address, secret.as_deref())
            .map_err(|why| fail(Exit::BadInput, format!("--webhook: {why}")))?;
        let home = saturn_store::home().ok_or_else(|| {
            fail(Exit::BadInput, "--webhook: no home directory: set SATURN_HOME to a directory")
        })?;
        webhooks.push(Webhook { receiver, wanted: wanted.clone(), home });
    }
    Ok(webhooks)
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
        let found = find::with_journal(named)?;
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
