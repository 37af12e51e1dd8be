// Renders conversations by a tokenizer's chat template, in Python's jinja2 (chat_renderer.py says how).
#ifndef CAIRN_CORPUS_SFT_CHAT_RENDERER_H_
#define CAIRN_CORPUS_SFT_CHAT_RENDERER_H_

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "corpus/io/python_process.h"
#include "corpus/sft/token_places.h"

namespace cairn::corpus {

// The texts of the files that a template and its special tokens come from; those that are not there are empty.
struct ChatFiles {
  std::string name;  // of the file with the template or of the tokenizer, for messages
  std::string tokenizer_config, special_tokens_map;
  std::string chat_template;  // chat_template.jinja, or a file in its place
};

struct RenderedChat {
  std::string text;                // UTF-8
  std::vector<ByteRange> answers;  // the bytes of it that {% generation %} encloses
};

// Each has a process of its own. Only one thread may use it at a time.
class ChatRenderer {
 public:
  // BAD_TOKENIZER: there is no template, or it is wrong. UNSUPPORTED: Python or jinja2 is missing or too old; or the
  // template has no {% generation %}. Else as PythonProcess.
  static absl::StatusOr<std::unique_ptr<ChatRenderer>> Start(const ChatFiles& files, const std::atomic<bool>* stop);

  // Renders the conversation of a line of JSON. BAD_JSON_LINE: the line has none, or the template refuses it.
  // BAD_TOKENIZER: the template does what its sandbox forbids. MEMORY_LIMIT, INPUT_UNREADABLE: it needs more than 2 GiB
  // of memory, or more than 10 seconds of processor time (the process ends by SIGXCPU). Else as PythonProcess.
  absl::Status Render(std::string_view line, RenderedChat& chat);

 private:
  explicit ChatRenderer(std::unique_ptr<PythonProcess> process) : process_(std::move(process)) {}

  const std::unique_ptr<PythonProcess> process_;
};

// Reads the content of the frame R; `chat` is then what it has. INVALID_ARGUMENT (INPUT_UNREADABLE): it is none.
absl::Status ParseRenderedChat(std::string_view content, RenderedChat& chat);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SFT_CHAT_RENDERER_H_
