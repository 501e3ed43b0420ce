"""Point-to-point messages: which send and which receive are one message, and who waits for whom."""

from rankscope.questions.messages.matching import Messages, matched_messages, message_blocks

__all__ = ["Messages", "matched_messages", "message_blocks"]
