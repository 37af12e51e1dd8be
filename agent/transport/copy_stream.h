// The consumer's end of TransferService.FetchCopies.
#ifndef CAIRN_AGENT_TRANSPORT_COPY_STREAM_H_
#define CAIRN_AGENT_TRANSPORT_COPY_STREAM_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>

#include "cairn/v1/transfer_service.grpc.pb.h"

namespace cairn {

struct StreamedCopies {
  grpc::Status ended;
  // Written to the memory; less than was asked for if the source ended early.
  uint64_t bytes = 0;
  // The source had more to say than was asked for: the call was cancelled.
  bool too_much = false;
};

// Calls FetchCopies and writes what comes to [to, to + bytes). Blocks; another thread may cancel `context`.
StreamedCopies StreamCopies(v1::TransferService::Stub& source, grpc::ClientContext& context,
                            const v1::FetchCopiesRequest& request, char* to, uint64_t bytes);

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_COPY_STREAM_H_
