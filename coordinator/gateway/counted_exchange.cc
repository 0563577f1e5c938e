#include "coordinator/gateway/counted_exchange.h"

#include <atomic>
#include <utility>

namespace shardline {
namespace {

class CountedExchange final : public HttpExchange {
 public:
  CountedExchange(std::shared_ptr<HttpExchange> exchange, std::function<void(int)> answered)
      : exchange_(std::move(exchange)), answered_(std::move(answered)) {}

  const HttpRequest& request() const override { return exchange_->request(); }
  void Answer(HttpResponse response) override {
    Count(response.status);
    exchange_->Answer(std::move(response));
  }
  void Begin(HttpResponse response) override {
    Count(response.status);
    exchange_->Begin(std::move(response));
  }
  bool Write(std::string piece) override { return exchange_->Write(std::move(piece)); }
  void Finish() override { exchange_->Finish(); }
  void Abort() override { exchange_->Abort(); }
  void OnGone(absl::AnyInvocable<void()> gone) override { exchange_->OnGone(std::move(gone)); }

 private:
  void Count(int status) {
    if (!counted_.exchange(true)) answered_(status);
  }

  const std::shared_ptr<HttpExchange> exchange_;
  const std::function<void(int)> answered_;
  std::atomic<bool> counted_ = false;
};

}  // namespace

std::shared_ptr<HttpExchange> Counted(std::shared_ptr<HttpExchange> exchange,
                                      std::function<void(int)> answered) {
  return std::make_shared<CountedExchange>(std::move(exchange), std::move(answered));
}

}  // namespace shardline
