#include "coordinator/gateway/http_listener.h"

#include <string_view>

#include <openssl/ssl.h>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace shardline {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// The kernel's share of a client that reads slowly.
constexpr int kSocketBufferBytes = 128 * 1024;

struct HostAndPort {
  std::string host;
  std::string port;
};

absl::StatusOr<HostAndPort> SplitAddress(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  int port = -1;
  if (colon == std::string::npos || !absl::SimpleAtoi(listen.substr(colon + 1), &port) ||
      port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", listen, "' is no address to listen on: host:port is needed"));
  }
  std::string host = listen.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return HostAndPort{.host = host, .port = std::to_string(port)};
}

absl::Status ToStatus(const error_code& ec, std::string_view what, const std::string& name) {
  if (!ec) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(std::string(what), " ", name, ": ", ec.message()));
}

}  // namespace

absl::Status ListenOn(tcp::acceptor& acceptor, const std::string& listen) {
  SL_ASSIGN_OR_RETURN(const HostAndPort address, SplitAddress(listen));
  error_code ec;
  tcp::resolver resolver(acceptor.get_executor());
  const auto found = resolver.resolve(address.host, address.port, tcp::resolver::passive, ec);
  if (ec) return ToStatus(ec, "cannot listen on", listen);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), ec);
  if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  // Inherited: what the kernel may hold of a client is bounded as well.
  if (!ec) acceptor.set_option(asio::socket_base::send_buffer_size(kSocketBufferBytes), ec);
  if (!ec) acceptor.set_option(asio::socket_base::receive_buffer_size(kSocketBufferBytes), ec);
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(asio::socket_base::max_listen_connections, ec);
  return ToStatus(ec, "cannot listen on", listen);
}

namespace {

int SelectHttp11(SSL*, const unsigned char** out, unsigned char* out_size,
                 const unsigned char* offered, unsigned int offered_size, void*) {
  static constexpr unsigned char kOurs[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  const int result =
      SSL_select_next_proto(&chosen, out_size, kOurs, sizeof(kOurs) - 1, offered, offered_size);
  *out = chosen;
  return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

}  // namespace

absl::Status LoadCertificate(const HttpServerOptions& options,
                             std::optional<asio::ssl::context>& tls) {
  if (options.tls_certificate.empty() && options.tls_key.empty()) return absl::OkStatus();
  if (options.tls_certificate.empty() || options.tls_key.empty()) {
    return absl::InvalidArgumentError("a TLS certificate and its key are needed, or neither");
  }
  tls.emplace(asio::ssl::context::tls_server);
  SSL_CTX_set_min_proto_version(tls->native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_options(tls->native_handle(), SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_alpn_select_cb(tls->native_handle(), SelectHttp11, nullptr);
  error_code ec;
  tls->use_certificate_chain_file(options.tls_certificate, ec);
  if (ec) return ToStatus(ec, "cannot use the TLS certificate", options.tls_certificate);
  tls->use_private_key_file(options.tls_key, asio::ssl::context::pem, ec);
  return ToStatus(ec, "cannot use the TLS key", options.tls_key);
}

}  // namespace shardline
