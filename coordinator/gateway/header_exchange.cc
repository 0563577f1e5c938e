#include "coordinator/gateway/header_exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"

namespace shardline {
namespace {

class HeaderExchange final : public HttpExchange {
 public:
  HeaderExchange(std::shared_ptr<HttpExchange> exchange, HttpHeaders headers)
      : exchange_(std::move(exchange)), headers_(std::move(headers)) {}

  const HttpRequest& request() const override { return exchange_->request(); }
  void Answer(HttpResponse response) override { exchange_->Answer(With(std::move(response))); }
  void Begin(HttpResponse response) override { exchange_->Begin(With(std::move(response))); }
  bool Write(std::string piece) override { return exchange_->Write(std::move(piece)); }
  void Finish() override { exchange_->Finish(); }
  void Abort() override { exchange_->Abort(); }
  void OnGone(absl::AnyInvocable<void()> gone) override { exchange_->OnGone(std::move(gone)); }

 private:
  HttpResponse With(HttpResponse response) const {
    for (const auto& header : headers_) {
      const bool has = std::any_of(
          response.headers.begin(), response.headers.end(),
          [&](const auto& own) { return absl::EqualsIgnoreCase(own.first, header.first); });
      if (!has) response.headers.push_back(header);
    }
    return response;
  }

  const std::shared_ptr<HttpExchange> exchange_;
  const HttpHeaders headers_;
};

}  // namespace

std::shared_ptr<HttpExchange> WithHeaders(std::shared_ptr<HttpExchange> exchange,
                                          HttpHeaders headers) {
  return std::make_shared<HeaderExchange>(std::move(exchange), std::move(headers));
}

}  // namespace shardline
