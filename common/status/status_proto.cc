#include "common/status/status_proto.h"

#include <string>
#include <string_view>

#include "common/base/printable.h"
#include "google/rpc/error_details.pb.h"

namespace cairn {
namespace {

// The types of details that errors of Cairn have.
constexpr const char* kDetailUrls[] = {"type.googleapis.com/google.rpc.ErrorInfo",
                                       "type.googleapis.com/google.rpc.RetryInfo"};

// An error of another library, or from the wire, may have any bytes in its message.
std::string ShownMessage(std::string_view message) { return Printable(message, "\n\t"); }

}  // namespace

google::rpc::Status StatusToProto(const absl::Status& status) {
  google::rpc::Status proto;
  if (status.ok()) return proto;
  proto.set_code(static_cast<int>(status.code()));
  proto.set_message(ShownMessage(std::string(status.message())));
  for (const char* url : kDetailUrls) {
    const auto payload = status.GetPayload(url);
    if (!payload.has_value()) continue;
    google::protobuf::Any* detail = proto.add_details();
    detail->set_type_url(url);
    detail->set_value(std::string(*payload));
  }
  return proto;
}

absl::Status StatusFromProto(const google::rpc::Status& proto) {
  if (proto.code() == 0) return absl::OkStatus();
  absl::StatusCode code = absl::StatusCode::kUnknown;
  if (proto.code() >= 1 && proto.code() <= 16) code = static_cast<absl::StatusCode>(proto.code());
  absl::Status status(code, ShownMessage(proto.message()));
  for (const google::protobuf::Any& detail : proto.details()) {
    for (const char* url : kDetailUrls) {
      if (detail.type_url() == url) status.SetPayload(url, absl::Cord(detail.value()));
    }
  }
  return status;
}

}  // namespace cairn
