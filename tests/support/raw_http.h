#pragma once

// A client that sends exactly the bytes it is told to, and sees exactly what comes back. For what a
// well-behaved client never does. One thread. Every wait ends: see kRawPatience.

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace shardline::testing {

// Far beyond what any answer of a test takes; a wait that is longer counts as "nothing came".
constexpr absl::Duration kRawPatience = absl::Seconds(20);

struct RawAnswer {
  int status = 0;                              // 0: none came.
  std::map<std::string, std::string> headers;  // Names in lower case.
  std::string body;                            // Of all chunks.
  std::vector<std::string> chunks;
  bool is_whole = false;  // Ended by its length or the last chunk.
};

class RawHttp {
 public:
  struct Options {
    bool tls = false;
    std::string tls_offer;    // Protocols for ALPN, as "\x02h2\x08http/1.1".
    int tls_version_max = 0;  // 11 for TLS 1.1, 12 for 1.2; 0: any.
    int receive_buffer = 0;   // Bytes; 0: the system's own.
  };
  // To 127.0.0.1:`port`.
  static RawHttp Connect(int port) { return Connect(port, {}); }
  static RawHttp Connect(int port, const Options& options);
  RawHttp(RawHttp&&) noexcept;
  RawHttp& operator=(RawHttp&&) noexcept;
  ~RawHttp();

  bool ok() const { return socket_ != nullptr; }  // Connected, and shook hands.
  std::string protocol() const;                   // By ALPN.

  // False if the other end is gone.
  bool Send(std::string_view bytes);
  void CloseWriting();  // FIN; what comes back can still be read.
  void Close();         // FIN for good.
  void Reset();         // RST.

  // Up to `bytes`; empty at the end.
  std::string Read(size_t bytes);
  // What comes until `text` has come, or the end.
  std::string ReadUntil(std::string_view text);
  // One whole answer, less what has been read of it. `has_body` is false after HEAD.
  RawAnswer ReadAnswer(bool has_body = true);
  // The head of an answer, then its chunks one by one; nothing at the end.
  RawAnswer ReadHead();
  std::optional<std::string> ReadChunk();

  // Waits for the end. True if it was an orderly one (FIN) and nothing came before it.
  bool AwaitEnd();
  // Waits for the end, whatever comes before it and of whatever kind it is.
  void Drain();

 private:
  struct Socket;
  explicit RawHttp(std::unique_ptr<Socket> socket);
  bool Fill();  // Reads more into buffer_; false at the end.

  std::unique_ptr<Socket> socket_;
  std::string buffer_;  // Read and not given out.
};

}  // namespace shardline::testing
