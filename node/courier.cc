#include "node/courier.h"

#include <optional>
#include <utility>

namespace shardline {

Courier::Courier(Strand* strand, size_t waiting_max)
    : strand_(strand), waiting_(waiting_max), thread_([this] {
        while (std::optional<Strand::Task> task = waiting_.Take()) {
          strand_->Post(*std::move(task));
        }
      }) {}

Courier::~Courier() {
  waiting_.Close();
  thread_.join();
}

bool Courier::Post(Strand::Task task) { return waiting_.TryPost(std::move(task)); }

}  // namespace shardline
