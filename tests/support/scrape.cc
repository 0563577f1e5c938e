#include "tests/support/scrape.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <sstream>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace shardline::testing {
namespace {

constexpr std::string_view kRequest =
    "GET /metrics HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n";

absl::StatusOr<std::string> Get(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0) return absl::InternalError("socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  bool sent = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  sent = sent && write(fd, kRequest.data(), kRequest.size()) == ssize_t{kRequest.size()};
  std::array<char, 4096> buffer;
  for (ssize_t got = 0; sent && (got = read(fd, buffer.data(), buffer.size())) > 0;) {
    answer.append(buffer.data(), static_cast<size_t>(got));
  }
  close(fd);
  if (!sent) return absl::UnavailableError(absl::StrCat("nobody serves port ", port));
  return answer;
}

}  // namespace

absl::StatusOr<Scrape> ScrapeMetrics(int port) {
  const absl::StatusOr<std::string> answer = Get(port);
  if (!answer.ok()) return answer.status();
  const size_t body = answer->find("\r\n\r\n");
  if (!absl::StrContains(answer->substr(0, answer->find('\r')), " 200 ") ||
      body == std::string::npos) {
    return absl::InternalError(*answer);
  }
  Scrape scrape;
  std::istringstream lines(answer->substr(body + 4));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == '#') continue;
    const size_t space = line.rfind(' ');
    double value = 0;
    if (space == std::string::npos || !absl::SimpleAtod(line.substr(space + 1), &value)) {
      return absl::InternalError(absl::StrCat("not a sample: ", line));
    }
    if (!scrape.emplace(line.substr(0, space), value).second) {
      return absl::InternalError(absl::StrCat("twice: ", line));
    }
  }
  return scrape;
}

}  // namespace shardline::testing
