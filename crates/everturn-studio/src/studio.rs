//! The routes of the page.

use std::path::PathBuf;
use std::sync::Arc;

use everturn_core::{Context, async_trait};
use everturn_server::axum::body::{Body, Bytes};
use everturn_server::axum::http::{HeaderValue, Method, Request, Response, StatusCode, header};
use everturn_server::{Audience, ProtocolAdapter, Server};

use crate::assets::{Asset, Assets};

/// Only the server's own scripts and styles run, no other page may frame this one, and a text cannot become
/// markup: the browser blocks the functions that would parse it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
                      media-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// The file of the page itself.
const INDEX: &str = "index.html";

/// The page, and its location.
///
/// By default the page is at `/` and its other files are below `/studio/`.
#[derive(Debug, Clone, Default)]
#[must_use = "the studio has no effect until a server serves it"]
pub struct Studio {
    base: String,
    assets: Assets,
}

impl Studio {
    /// Returns the page as embedded in the program. A debug build reads the files from the source folder if
    /// it exists, so that changes appear when the page is reloaded.
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves the page at another path, such as `/ops/`.
    pub fn at(mut self, path: impl AsRef<str>) -> Self {
        let path = path.as_ref().trim_matches('/');
        self.base = if path.is_empty() {
            String::new()
        } else {
            format!("/{path}")
        };
        self
    }

    /// Reads the page's files from a folder at every request.
    pub fn from_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.assets = Assets::in_folder(folder);
        self
    }
}

/// Serves the page.
pub trait ServeStudio {
    /// Adds the page to a server. Every caller may load its files; its API calls carry the user's token.
    fn studio(self, studio: Studio) -> Self;
}

impl ServeStudio for Server {
    fn studio(self, studio: Studio) -> Self {
        let page = Page {
            below: format!("{}/studio/", studio.base),
            assets: Arc::new(studio.assets),
        };
        // Relative addresses in the page are resolved from its folder.
        let server = self.adapter(format!("{}/", studio.base), page.clone());
        let server = match studio.base.as_str() {
            "" => server,
            base => server.adapter(base, Moved(format!("{base}/"))),
        };
        server.adapter(format!("{}{{*path}}", page.below), page)
    }
}

#[derive(Clone)]
struct Page {
    below: String,
    assets: Arc<Assets>,
}

#[async_trait]
impl ProtocolAdapter for Page {
    // The page asks for a token, so it must load before the caller is identified.
    fn audience(&self) -> Audience {
        Audience::Everyone
    }

    async fn handle(&self, request: Request<Bytes>, _context: Context) -> Response<Body> {
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "this path allows GET, HEAD");
        }
        let name = request.uri().path().strip_prefix(&self.below).unwrap_or(INDEX);
        let Some(asset) = self.assets.find(name) else {
            return plain(StatusCode::NOT_FOUND, "the page has no such file");
        };
        let known = request.headers().get(header::IF_NONE_MATCH);
        if known.is_some_and(|known| known.as_bytes() == asset.tag.as_bytes()) {
            return guarded(Response::new(Body::empty()), StatusCode::NOT_MODIFIED, &asset);
        }
        let body = Body::from(asset.content.clone());
        let mut response = guarded(Response::new(body), StatusCode::OK, &asset);
        if name == INDEX {
            // Without preloading, a browser would discover the modules import by import.
            let links: Vec<String> = Assets::modules()
                .map(|module| format!("<studio/{module}>; rel=modulepreload"))
                .collect();
            if let Ok(links) = HeaderValue::from_str(&links.join(", ")) {
                response.headers_mut().insert(header::LINK, links);
            }
        }
        response
    }
}

/// Adds the headers of a file.
fn guarded(mut response: Response<Body>, status: StatusCode, asset: &Asset) -> Response<Body> {
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let mut add = |name, value| headers.insert(name, HeaderValue::from_static(value));
    add(header::CONTENT_TYPE, asset.content_type);
    add(header::CONTENT_SECURITY_POLICY, POLICY);
    add(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    add(header::REFERRER_POLICY, "no-referrer");
    add(header::X_FRAME_OPTIONS, "DENY");
    // Files are revalidated on each load, because the next version of the program has other files.
    add(header::CACHE_CONTROL, "no-cache");
    if let Ok(tag) = HeaderValue::from_str(&asset.tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

/// The path without a trailing slash.
struct Moved(String);

#[async_trait]
impl ProtocolAdapter for Moved {
    fn audience(&self) -> Audience {
        Audience::Everyone
    }

    async fn handle(&self, _request: Request<Bytes>, _context: Context) -> Response<Body> {
        let mut response = plain(StatusCode::PERMANENT_REDIRECT, "the page is below");
        if let Ok(place) = HeaderValue::from_str(&self.0) {
            response.headers_mut().insert(header::LOCATION, place);
        }
        response
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
