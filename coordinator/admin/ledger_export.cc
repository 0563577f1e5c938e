#include "coordinator/admin/ledger_export.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/status_macros.h"
#include "coordinator/admin/ledger_view.h"
#include "proto/wire/failure_conversion.h"

namespace shardline {
namespace {

constexpr uint64_t kPageRecords = 256;

}  // namespace

LedgerExport::LedgerExport(AdminEvents* events, const v1::ListRecordsRequest& request)
    : events_(events) {
  absl::StatusOr<LedgerQuery> query = FromProto(request, std::numeric_limits<uint64_t>::max());
  if (!query.ok()) {
    Finish(ToGrpcStatus(query.status()));
    return;
  }
  query_ = *std::move(query);
  FetchPage();
}

void LedgerExport::FetchPage() {
  events_->WithStore([this](const absl::StatusOr<Store*>& store) {
    if (!store.ok()) return TakePage(store.status());
    LedgerQuery page = query_;
    page.limit = std::min(query_.limit, kPageRecords);
    TakePage((*store)->ListRecords(page));
  });
}

void LedgerExport::TakePage(absl::StatusOr<std::vector<LedgerEntry>> page) {
  if (cancelled_.load()) {
    return Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the operator hung up"));
  }
  if (!page.ok() || page->empty()) return Finish(ToGrpcStatus(page.status()));
  page_ = *std::move(page);
  next_ = 0;
  query_.after = page_.back().sequence;
  query_.limit -= page_.size();
  WriteNext();
}

void LedgerExport::WriteNext() {
  record_ = ToProto(page_[next_++]);
  StartWrite(&record_);
}

void LedgerExport::OnWriteDone(bool ok) {
  if (!ok) return Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the operator hung up"));
  if (next_ < page_.size()) return WriteNext();
  if (query_.limit == 0) return Finish(grpc::Status::OK);
  FetchPage();
}

}  // namespace shardline
