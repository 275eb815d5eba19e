//! The studio: a page for using agents and inspecting their sessions.
//!
//! The page shows a conversation as a tree of durable snapshots, with its state as it changes, its artifacts,
//! a trace of each turn, and background runs. It uses only the HTTP API of [`everturn_server`], so it is also
//! an example of a client. It consists of ES modules without a build step, embedded in the program.
//!
//! ```
//! use everturn_core::{Registry, Result};
//! use everturn_server::{ArchiveAccess, Server};
//! use everturn_studio::{ServeStudio, Studio};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
//! let server = Server::new(&Registry::new())
//!     // Who may label, fork, export and delete sessions; the page offers only what the server does.
//!     .archive(ArchiveAccess::everyone())
//!     .studio(Studio::new())
//!     .bind(("127.0.0.1", 0))
//!     .await?;
//! println!("http://{}", server.address());
//! # server.handle().shut_down();
//! # server.run().await
//! # }
//! ```
//!
//! # Who may see it
//!
//! The page's files contain no data and can be loaded by every caller. The page shows what the server's
//! routes return to its caller: if the server responds with `401`, the page asks for a bearer token and keeps
//! it while its tab is open (`sessionStorage`). Traces are shown to
//! [operators](everturn_server::Server::operators). The content security policy (`Content-Security-Policy`)
//! allows scripts of the server only and forbids framing. Texts of models, tools and users never become
//! markup.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod assets;
mod studio;

pub use self::studio::{ServeStudio, Studio};
