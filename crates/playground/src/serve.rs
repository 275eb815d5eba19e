//! Serving the agents until the process is told to end.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use everturn::Result;
use everturn::prelude::Everturn;
use everturn::server::Bound;
use everturn::sqlite::SqliteStreamLog;

use crate::agents;
use crate::database::Database;
use crate::greeting::Greeting;
use crate::model::Choice;

/// Where it listens if that is not said.
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

/// The pause before each word, so that a stream can be seen to be one.
const PACE: Duration = Duration::from_millis(30);

/// How often to look for background runs that another process lost.
const RECOVERY: Duration = Duration::from_secs(2);

/// Serves at an address; without one at the usual one, or at any if that is taken.
pub(crate) async fn serve(address: Option<SocketAddr>, database: &Path, model: Option<String>) -> Result<()> {
    let model = Choice::make(model).await?;
    let told = model.to_string();
    let files = Database::open(database).await?;
    let (app, demos) = agents::define(&files, model, PACE).await?;
    let (server, notice) = match address {
        Some(address) => (bind(&app, &files.streams, address).await?, None),
        None => bind_somewhere(&app, &files.streams).await?,
    };
    let recovering = app.recover_every(RECOVERY);

    let greeting = Greeting::new(server.address(), database, &demos, told, notice);
    let mut out = std::io::stdout().lock();
    // Whether or not anybody reads it, the server serves.
    let _ = write!(out, "{greeting}").and_then(|()| out.flush());
    drop(out);

    let ended = server.run_until_shutdown().await;
    recovering.stop().await;
    ended
}

/// Takes the usual address, or any free port and a word about why.
async fn bind_somewhere(app: &Everturn, streams: &SqliteStreamLog) -> Result<(Bound, Option<String>)> {
    match bind(app, streams, ADDRESS).await {
        Ok(server) => Ok((server, None)),
        Err(error) => {
            let free = SocketAddr::new(ADDRESS.ip(), 0);
            let notice = format!(
                "{ADDRESS} cannot be had, so this is another port: {}.",
                error.message()
            );
            Ok((bind(app, streams, free).await?, Some(notice)))
        }
    }
}

async fn bind(app: &Everturn, streams: &SqliteStreamLog, address: SocketAddr) -> Result<Bound> {
    app.server().stream_log(streams.clone()).bind(address).await
}
