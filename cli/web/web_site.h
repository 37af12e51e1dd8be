// Says what `cairn serve` answers to a browser. It knows no socket, so tests ask it directly.
#ifndef CAIRN_CLI_WEB_WEB_SITE_H_
#define CAIRN_CLI_WEB_WEB_SITE_H_

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/http/http_server.h"

namespace cairn::cli {

// Thread-safe if its questions are. It only ever reads.
class WebSite {
 public:
  // Answers a question with JSON. `rest` stands behind its name in the path: it is "llm" of "/api/job/llm".
  using Question = std::function<absl::StatusOr<nlohmann::ordered_json>(const std::string& rest)>;
  struct Options {
    // The Authorization header of a question must hold it: "Bearer <token>".
    std::string token;
    // The Host headers that are answered. A page of another site whose name leads to this address is not: it could
    // otherwise ask in the name of whoever looks at it.
    std::vector<std::string> hosts;
    // The questions by their names: "job" answers "/api/job/...".
    std::map<std::string, Question> questions;
  };
  explicit WebSite(Options options) : options_(std::move(options)) {}

  HttpAnswer Answer(const HttpRequest& request) const;

 private:
  bool IsKnownHost(const std::string& host) const;
  HttpAnswer Ask(const std::string& path) const;

  const Options options_;
};

}  // namespace cairn::cli

#endif  // CAIRN_CLI_WEB_WEB_SITE_H_
