//! Serving the agents until shutdown.

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

/// The default address.
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

/// The pause before each word, so that streaming is visible.
const PACE: Duration = Duration::from_millis(30);

/// How often to poll for background runs whose process died.
const RECOVERY: Duration = Duration::from_secs(2);

/// Serves at an address; without one, at the default one, or at any free port if that is taken.
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
    // The server runs even if the greeting cannot be printed.
    let _ = write!(out, "{greeting}").and_then(|()| out.flush());
    drop(out);

    let ended = server.run_until_shutdown().await;
    recovering.stop().await;
    files.sessions.close().await?;
    ended
}

/// Binds the default address, or any free port with a note that says why.
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
