#include "proto/wire/grpc_callback_queue.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

namespace shardline {

void KeepCallbackQueue() {
  static const grpc::Server* const keeper = [] {
    grpc::ServerBuilder builder;
    builder.RegisterCallbackGenericService(new grpc::CallbackGenericService());
    return builder.BuildAndStart().release();
  }();
  (void)keeper;
}

}  // namespace shardline
