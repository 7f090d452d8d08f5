//! Chooses the protocol of an accepted connection.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::OnConnect;
use super::connection::Connection;
use super::http2;
use super::state::Shared;

/// The protocol of a server.
#[derive(Clone)]
pub(crate) enum Protocol {
    Http1,
    Http2,
    /// TLS, with HTTP/1 or HTTP/2 as negotiated by ALPN.
    Tls(TlsAcceptor),
}

impl Protocol {
    pub(crate) fn tls(certificate: &[u8], key: &[u8], names: &[&str]) -> Protocol {
        let certificates = vec![CertificateDer::from(certificate.to_vec())];
        let key = PrivateKeyDer::try_from(key.to_vec()).expect("a key as DER");
        // Named explicitly: a process that links two crypto providers has no default.
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
    pub(crate) async fn serve(self, stream: TcpStream, shared: Arc<Shared>) {
        let (on_connect, number) = count_connection(&shared);
        let Some(stream) = admit(on_connect, stream).await else { return };
        match self {
            Protocol::Http1 => Connection::new(stream, number, shared).serve_connection().await,
            Protocol::Http2 => http2::serve_connection(stream, number, shared).await,
            Protocol::Tls(acceptor) => {
                // A client that does not trust the certificate reports that itself.
                let Ok(stream) = acceptor.accept(stream).await else { return };
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    http2::serve_connection(stream, number, shared).await;
                } else {
                    Connection::new(stream, number, shared).serve_connection().await;
                }
            }
        }
    }
}

/// Counts a connection. Returns its treatment and its number.
fn count_connection(shared: &Shared) -> (OnConnect, u64) {
    let mut state = shared.state();
    state.connections += 1;
    (state.on_connect, state.connections)
}

async fn admit(on_connect: OnConnect, stream: TcpStream) -> Option<TcpStream> {
    match on_connect {
        OnConnect::Serve => return Some(stream),
        OnConnect::Close => {}
        OnConnect::Reset => {
            // Fails only on a socket that is already closed.
            let _ = stream.set_zero_linger();
        }
        OnConnect::Silence => std::future::pending().await,
    }
    None
}
