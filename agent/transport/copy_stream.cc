#include "agent/transport/copy_stream.h"

#include <cstring>

namespace cairn {

StreamedCopies StreamCopies(v1::TransferService::Stub& source, grpc::ClientContext& context,
                            const v1::FetchCopiesRequest& request, char* to, uint64_t bytes) {
  StreamedCopies streamed;
  const auto stream = source.FetchCopies(&context, request);
  v1::FetchCopiesResponse response;
  while (!streamed.too_much && stream->Read(&response)) {
    streamed.too_much = response.data().size() > bytes - streamed.bytes;
    if (streamed.too_much) {
      context.TryCancel();
    } else {
      std::memcpy(to + streamed.bytes, response.data().data(), response.data().size());
      streamed.bytes += response.data().size();
    }
  }
  streamed.ended = stream->Finish();
  return streamed;
}

}  // namespace cairn
