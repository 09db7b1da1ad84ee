"""How the back office writes times: to the second, in UTC, as everywhere where no tenant's zone is
meant. Found by Django by its name, before its own; a setting would come after those.
"""

DATETIME_FORMAT = "Y-m-d H:i:s"
