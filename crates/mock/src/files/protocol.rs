//! From an accepted socket to the protocol that is spoken on it.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::Welcome;
use super::connection::Connection;
use super::http2;
use super::shelf::Shelf;

/// What a server speaks.
#[derive(Clone)]
pub(crate) enum Protocol {
    Http1,
    Http2,
    /// What client and server agree on.
    Tls(TlsAcceptor),
}

impl Protocol {
    pub(crate) fn tls(certificate: &[u8], key: &[u8], names: &[&str]) -> Protocol {
        let certificates = vec![CertificateDer::from(certificate.to_vec())];
        let key = PrivateKeyDer::try_from(key.to_vec()).expect("a key as DER");
        // Named here, because a process that links two providers has no default.
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider knows them")
            .with_no_client_auth()
            .with_single_cert(certificates, key)
            .expect("a certificate and its key");
        config.alpn_protocols = names.iter().map(|name| name.as_bytes().to_vec()).collect();
        Protocol::Tls(TlsAcceptor::from(Arc::new(config)))
    }

    pub(crate) fn scheme(&self) -> &'static str {
        match self {
            Protocol::Http1 | Protocol::Http2 => "http",
            Protocol::Tls(_) => "https",
        }
    }

    /// Serves one connection until it ends.
    pub(crate) async fn serve(self, stream: TcpStream, shelf: Arc<Shelf>) {
        let (welcome, number) = greet(&shelf);
        let Some(stream) = admit(welcome, stream).await else { return };
        match self {
            Protocol::Http1 => Connection::new(stream, number, shelf).converse().await,
            Protocol::Http2 => http2::converse(stream, number, shelf).await,
            Protocol::Tls(acceptor) => {
                // A client that does not trust the certificate has said so to its own user.
                let Ok(stream) = acceptor.accept(stream).await else { return };
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    http2::converse(stream, number, shelf).await;
                } else {
                    Connection::new(stream, number, shelf).converse().await;
                }
            }
        }
    }
}

/// Counts a connection and says what becomes of it.
fn greet(shelf: &Shelf) -> (Welcome, u64) {
    let mut books = shelf.books();
    books.connections += 1;
    (books.welcome, books.connections)
}

async fn admit(welcome: Welcome, stream: TcpStream) -> Option<TcpStream> {
    match welcome {
        Welcome::Serve => return Some(stream),
        Welcome::Close => {}
        Welcome::Reset => {
            // Refused only by a socket that is already gone.
            let _ = stream.set_zero_linger();
        }
        Welcome::Silence => std::future::pending().await,
    }
    None
}
