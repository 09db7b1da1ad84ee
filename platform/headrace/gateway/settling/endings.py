"""What a client is told when its request did not come to a regular end. Pure."""

from headrace import errors
from headrace.gateway.orders import Blame
from headrace.gateway.settling.charging import Cause
from inference.contracts import Finish, FinishReason, RefusalCode


def cause_error(cause: Cause) -> errors.ApiError:
    """What a client that is still there is told about an early end."""
    match cause:
        case Cause.KEY_REVOKED:
            return errors.key_invalid()
        case Cause.DRAINING:
            return errors.overloaded("The server is shutting down; try again.")
        case Cause.TIMED_OUT:
            return errors.timed_out("The engine did not answer in time.")
        case Cause.ENGINE_LOST:
            return errors.engine_failed("The engine died while computing this request.")
        case Cause.FAULT:
            return errors.engine_failed("Internal error.")
        case Cause.CLIENT_GONE | Cause.SUPERSEDED:
            return errors.cancelled()


def engine_error(finish: Finish | None, blame: Blame) -> errors.ApiError:
    """What a client is told of a request that the engine itself ended."""
    if finish is not None and finish.error_code == RefusalCode.INVALID_GRAMMAR:
        message = finish.error_message or "The grammar leads nowhere."
        return errors.invalid(message, blame.grammar, RefusalCode.INVALID_GRAMMAR.value)
    if finish is not None and finish.reason is FinishReason.TIMED_OUT:
        return errors.timed_out("The request was not done within its time.")
    if finish is not None and finish.error_code == RefusalCode.DRAINING:
        return errors.overloaded("The engine is shutting down; try again.")
    return errors.engine_failed()


def refused_by_engine(finish: Finish, blame: Blame) -> errors.ApiError:
    """The client's error for a request that the engine would not take."""
    message = finish.error_message or "The engine refused this request."
    match finish.error_code:
        case RefusalCode.QUEUE_FULL | RefusalCode.QUEUE_TIMEOUT:
            return errors.overloaded("The engine is overloaded; try again shortly.")
        case RefusalCode.DRAINING:
            return errors.overloaded("The engine is shutting down; try again.")
        case RefusalCode.CONTEXT_LENGTH_EXCEEDED:
            return errors.invalid(message, blame.prompt, "context_length_exceeded")
        case RefusalCode.INVALID_GRAMMAR:
            return errors.invalid(message, blame.grammar)
        case RefusalCode.INVALID_REQUEST:
            return errors.invalid(message, None)
    return errors.engine_failed(message)
