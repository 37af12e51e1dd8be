#include "common/rpc/transport_use.h"

#include "absl/strings/str_cat.h"
#include "common/base/enum_text.h"

namespace cairn {

std::string TransportText(const TransportUse& use) {
  std::string text;
  for (const v1::Transport transport : use.transports) {
    absl::StrAppend(&text, text.empty() ? "" : "+", EnumText(transport));
    if (transport == v1::TRANSPORT_GRPC && !use.nccl_refusal.empty()) {
      absl::StrAppend(&text, " (nccl: ", use.nccl_refusal, ")");
    }
  }
  return text;
}

}  // namespace cairn
