//! The studio: a page to talk to agents and to look at their sessions.
//!
//! The page shows a conversation as a tree of durable snapshots, with its state as it changes, its artifacts, what each turn
//! did, and the runs that go on in the background. It uses the HTTP API of [`everturn_server`] alone, so it is also an example
//! of a client. It is made of ES modules without a build step, embedded in the program.
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
//! The page's files are the same on every server, and everybody may load them. The page shows what the server's routes
//! return to its caller: if the server answers `401`, the page asks for a bearer token and keeps it for as long as its tab is open
//! (`sessionStorage`). Traces are shown to [operators](everturn_server::Server::operators). Scripts come from the server itself and nothing else (`Content-Security-Policy`), no other page may frame
//! it, and texts of models, tools and users never become markup.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod assets;
mod studio;

pub use self::studio::{ServeStudio, Studio};
