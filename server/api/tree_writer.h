// Trees of dictionaries, lists, texts and numbers, written as Python's pickle or as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ridgeline::api {

// Calls come in the order of the text: a dictionary is Begin, then Key and a value for each entry, then End. The root is one
// value.
class TreeWriter {
 public:
  virtual ~TreeWriter() = default;

  virtual void BeginDict() = 0;
  virtual void Key(std::string_view key) = 0;
  virtual void EndDict() = 0;
  virtual void BeginList() = 0;
  virtual void EndList() = 0;
  virtual void Integer(std::int64_t value) = 0;
  virtual void Text(std::string_view text) = 0;  // UTF-8
  virtual void Truth(bool value) = 0;

  // The bytes of the whole tree. Call once, at the end.
  virtual std::string Finish() = 0;
};

// Protocol 2, with those opcodes alone that PyTorch's memory visualiser reads too.
class PickleWriter final : public TreeWriter {
 public:
  PickleWriter();
  void BeginDict() override;
  void Key(std::string_view key) override { Text(key); }
  void EndDict() override;
  void BeginList() override;
  void EndList() override;
  void Integer(std::int64_t value) override;
  void Text(std::string_view text) override;
  void Truth(bool value) override;
  std::string Finish() override;

 private:
  // An item of the list that is being written, if one is, comes next.
  void NoteItem();
  void AppendLittleEndian(std::uint64_t value, int num_bytes);

  std::string bytes_;
  std::vector<int> open_;  // of each container under way: items since the last append; -1: a dictionary
};

class JsonWriter final : public TreeWriter {
 public:
  void BeginDict() override { Open('{'); }
  void Key(std::string_view key) override;
  void EndDict() override { Close('}'); }
  void BeginList() override { Open('['); }
  void EndList() override { Close(']'); }
  void Integer(std::int64_t value) override;
  void Text(std::string_view text) override;
  void Truth(bool value) override;
  std::string Finish() override { return std::move(text_); }

 private:
  void Open(char bracket);
  void Close(char bracket);
  void Separate();
  void Quote(std::string_view text);

  std::string text_;
  bool needs_comma_ = false;
};

}  // namespace ridgeline::api
